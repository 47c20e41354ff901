// Command controllerruntime is an admission webhook as a Go project starts out today: controller-runtime's own server,
// decoder and handler, one rule and nothing else. It is what Reprieve's server is compared with.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	label   = "reprieve.dev/preemption-class"
	highest = 10
)

type handler struct {
	decoder admission.Decoder
}

// Handle refuses a pod whose preemption class is not 0 to 10.
func (h handler) Handle(_ context.Context, request admission.Request) admission.Response {
	var pod corev1.Pod
	if err := h.decoder.Decode(request, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	text, found := pod.Labels[label]
	if !found {
		return admission.Allowed("")
	}
	if class, err := strconv.Atoi(text); err != nil || class < 0 || class > highest {
		return admission.Errored(http.StatusBadRequest, errors.New(label+" must be between 0 and 10"))
	}
	return admission.Allowed("")
}

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1")
	certDir := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse()

	ctrllog.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certDir})
	server.Register("/validate", &webhook.Admission{Handler: handler{decoder: admission.NewDecoder(scheme)}})
	if err := server.Start(signals.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
