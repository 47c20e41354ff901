// Command nethttp is the least that a Go admission webhook can be: net/http, encoding/json, and a struct of just the
// fields that its one rule reads. It shows how much of a server's cost is the language and how much the framework.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	label   = "reprieve.dev/preemption-class"
	highest = 10
	maxBody = 8 << 20 // bytes: above the 3 MiB that an API server takes of one object, twice (object and oldObject)
)

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	} `json:"object"`
}

type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func decide(request *request) *response {
	text, found := request.Object.Metadata.Labels[label]
	if class, err := strconv.Atoi(text); found && (err != nil || class < 0 || class > highest) {
		refusal := &status{Code: http.StatusBadRequest, Message: label + " must be between 0 and 10"}
		return &response{UID: request.UID, Status: refusal}
	}
	return &response{UID: request.UID, Allowed: true}
}

func validate(writer http.ResponseWriter, received *http.Request) {
	var asked review
	body := http.MaxBytesReader(writer, received.Body, maxBody)
	if err := json.NewDecoder(body).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(writer, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	answer := review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: decide(asked.Request)}
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
