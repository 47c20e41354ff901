// Command create sends pod creations to a real API server, as dry runs, for some seconds, and
// measures the latency of each.
//
// A client is a kept-alive connection with one request at a time, like one user or controller. A
// refused creation ends the run: only admitted ones are compared.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

const answerTimeout = 30 * time.Second

// result is the output: the number of requests by latency, from which percentiles follow.
type result struct {
	Seconds      float64     `json:"seconds"`
	CPUSeconds   float64     `json:"cpu_seconds"`
	Microseconds map[int]int `json:"microseconds"`
}

type outcome struct {
	microseconds map[int]int
	err          error
}

type creator struct {
	http  *http.Client
	url   string
	token string
	pods  [][]byte
}

func main() {
	url := flag.String("url", "", "URL of the pods of a namespace, with ?dryRun=All")
	authority := flag.String("ca", "", "file with the API server's certificate authority")
	tokenFile := flag.String("token-file", "", "file with the bearer token")
	pods := flag.String("pods", "", "file with one pod a line, as JSON")
	clients := flag.Int("clients", 1, "connections, each with one request at a time")
	seconds := flag.Float64("seconds", 1, "how long to ask")
	flag.Parse()
	log.SetFlags(0)

	asking, err := newCreator(*url, *authority, *tokenFile, *pods, *clients)
	if err != nil {
		log.Fatal(err)
	}
	measured, err := asking.ask(*clients, time.Duration(*seconds*float64(time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		log.Fatal(err)
	}
}

func newCreator(url, authority, tokenFile, pods string, clients int) (*creator, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", authority)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	lines, err := os.ReadFile(pods)
	if err != nil {
		return nil, err
	}
	// A transport with its own TLS configuration uses HTTP/1.1: a connection for each client.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: clients}
	made := &creator{
		http:  &http.Client{Transport: transport, Timeout: answerTimeout},
		url:   url,
		token: strings.TrimSpace(string(token)),
		pods:  bytes.Split(bytes.TrimSpace(lines), []byte("\n")),
	}
	return made, nil
}

// ask opens each client's connection with one request that is not measured, and then starts all
// clients together.
func (c *creator) ask(clients int, duration time.Duration) (*result, error) {
	opened, begin, outcomes := make(chan error, clients), make(chan time.Time), make(chan outcome, clients)
	for number := range clients {
		go func() {
			opened <- c.create(number)
			seen, err := c.askUntil((<-begin).Add(duration), number)
			outcomes <- outcome{seen, err}
		}()
	}
	var failed error
	for range clients {
		failed = errors.Join(failed, <-opened)
	}
	if failed != nil {
		return nil, failed
	}
	started, cpu := time.Now(), cpuSeconds()
	for range clients {
		begin <- started
	}
	measured := &result{Microseconds: map[int]int{}}
	for range clients {
		ended := <-outcomes
		failed = errors.Join(failed, ended.err)
		for latency, times := range ended.microseconds {
			measured.Microseconds[latency] += times
		}
	}
	measured.Seconds, measured.CPUSeconds = time.Since(started).Seconds(), cpuSeconds()-cpu
	return measured, failed
}

func (c *creator) askUntil(deadline time.Time, first int) (map[int]int, error) {
	seen := map[int]int{}
	for turn := first; ; turn++ {
		sent := time.Now()
		if !sent.Before(deadline) {
			return seen, nil
		}
		if err := c.create(turn); err != nil {
			return seen, err
		}
		seen[int(time.Since(sent).Microseconds())]++
	}
}

func (c *creator) create(turn int) error {
	request, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(c.pods[turn%len(c.pods)]))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusCreated {
		err = fmt.Errorf("answered %s: %.500s", answer.Status, body)
	}
	return err
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
