// Command controllerruntime is an admission webhook as a Go project would begin it today:
// controller-runtime's own server, decoder and handlers, with one rule and one default. Reprieve's
// server is compared with it.
package main

import (
	"context"
	"encoding/json"
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
	label        = "reprieve.dev/preemption-class"
	highest      = 10
	defaultClass = "4"
)

type handler struct {
	decoder admission.Decoder
}

type defaulter struct {
	decoder admission.Decoder
}

// Handle gives a pod without a preemption class the default one.
func (d defaulter) Handle(_ context.Context, request admission.Request) admission.Response {
	var pod corev1.Pod
	if err := d.decoder.Decode(request, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if _, found := pod.Labels[label]; found {
		return admission.Allowed("")
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[label] = defaultClass
	changed, err := json.Marshal(&pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
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
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 0, "port to listen on")
	certDir := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse()

	ctrllog.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{Host: *host, Port: *port, CertDir: *certDir})
	decoder := admission.NewDecoder(scheme)
	server.Register("/validate", &webhook.Admission{Handler: handler{decoder: decoder}})
	server.Register("/mutate", &webhook.Admission{Handler: defaulter{decoder: decoder}})
	if err := server.Start(signals.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
