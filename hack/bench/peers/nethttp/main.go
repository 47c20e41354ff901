// Command nethttp is an admission webhook in Go without a framework: net/http, encoding/json, the
// API's own type for the review, and of the object only the field that its one rule reads. It shows
// how much of a server's cost comes from the language and how much from the framework.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	label   = "reprieve.dev/preemption-class"
	highest = 10
	maxBody = 8 << 20 // bytes: more than object and oldObject, with at most 3 MiB each
)

// object has only the fields that the rule reads. encoding/json skips the rest, as Reprieve's
// decoder does.
type object struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

func decide(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	var pod object
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return nil, err
	}
	text, found := pod.Metadata.Labels[label]
	if class, err := strconv.Atoi(text); found && (err != nil || class < 0 || class > highest) {
		refusal := &metav1.Status{Code: http.StatusBadRequest, Message: label + " must be between 0 and 10"}
		return &admissionv1.AdmissionResponse{UID: request.UID, Result: refusal}, nil
	}
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}, nil
}

func validate(writer http.ResponseWriter, received *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(writer, received.Body, maxBody))
	if err != nil {
		http.Error(writer, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(writer, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	response, err := decide(review.Request)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	answer := admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}
	if err := json.NewEncoder(writer).Encode(answer); err != nil {
		log.Print(err)
	}
}

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1")
	certDir := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse()

	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	http.HandleFunc("POST /validate", validate)
	server := &http.Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(*port))}
	context.AfterFunc(stopped, func() { _ = server.Close() })
	certificate, key := filepath.Join(*certDir, "tls.crt"), filepath.Join(*certDir, "tls.key")
	if err := server.ListenAndServeTLS(certificate, key); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}
