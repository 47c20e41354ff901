// Command load sends reviews to one admission webhook for some seconds, over kept-alive TLS
// connections, and checks every answer.
//
// It writes requests that were encoded beforehand and reads answers by hand, because it must cost
// less than any server it measures: net/http's client alone costs as much as the fastest of them.
// It understands only the HTTP/1.1 that a webhook answers with: a status line, headers, and a body
// of Content-Length bytes.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 10 * time.Second
	maxAnswer     = 1 << 20
)

// review is one line of the file of bodies: the request and its correct answer.
type review struct {
	Body    json.RawMessage `json:"body"`
	UID     string          `json:"uid"`
	Allowed bool            `json:"allowed"`
	Code    int             `json:"code"` // of a refusal

	request []byte
}

type answer struct {
	Kind     string `json:"kind"`
	Response struct {
		UID     string `json:"uid"`
		Allowed bool   `json:"allowed"`
		Status  struct {
			Code int `json:"code"`
		} `json:"status"`
	} `json:"response"`
}

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

func main() {
	address := flag.String("address", "", "host and port of the server")
	path := flag.String("path", "/validate", "path of the webhook")
	authority := flag.String("ca", "", "file with the certificate authority")
	bodies := flag.String("reviews", "", "file with one JSON object a line: body, uid, allowed, code")
	connections := flag.Int("connections", 8, "kept-alive connections, each with one request at a time")
	seconds := flag.Float64("seconds", 1, "how long to ask")
	flag.Parse()
	log.SetFlags(0)

	reviews, err := readReviews(*bodies, *path, *address)
	if err != nil {
		log.Fatal(err)
	}
	config, err := trusting(*authority)
	if err != nil {
		log.Fatal(err)
	}
	measured, err := ask(*address, config, reviews, *connections, time.Duration(*seconds*float64(time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		log.Fatal(err)
	}
}

func readReviews(file, path, host string) ([]*review, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reviews []*review
	for line := range bytes.Lines(data) {
		asked := &review{}
		if err := json.Unmarshal(line, asked); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		const head = "POST %s?timeout=3s HTTP/1.1\r\nHost: %s\r\nUser-Agent: kube-apiserver-admission\r\n" +
			"Content-Length: %d\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\r\n"
		asked.request = append(fmt.Appendf(nil, head, path, host, len(asked.Body)), asked.Body...)
		reviews = append(reviews, asked)
	}
	if len(reviews) == 0 {
		return nil, fmt.Errorf("%s: no review in it", file)
	}
	return reviews, nil
}

func trusting(authority string) (*tls.Config, error) {
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", authority)
	}
	return &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}}, nil
}

// ask opens all connections first, so that handshakes are not measured.
func ask(address string, config *tls.Config, reviews []*review, count int, duration time.Duration) (*result, error) {
	connections := make([]*connection, count)
	for number := range connections {
		opened, err := dial(address, config)
		if err != nil {
			return nil, err
		}
		defer opened.socket.Close()
		connections[number] = opened
	}
	outcomes := make(chan outcome, count)
	started, cpu := time.Now(), cpuSeconds()
	for number, each := range connections {
		go func() {
			seen, err := each.askUntil(started.Add(duration), reviews, number)
			outcomes <- outcome{seen, err}
		}()
	}
	measured := &result{Microseconds: map[int]int{}}
	for range connections {
		ended := <-outcomes
		if ended.err != nil {
			return nil, ended.err
		}
		for latency, times := range ended.microseconds {
			measured.Microseconds[latency] += times
		}
	}
	measured.Seconds, measured.CPUSeconds = time.Since(started).Seconds(), cpuSeconds()-cpu
	return measured, nil
}

type connection struct {
	socket *tls.Conn
	reader *bufio.Reader
	body   []byte
}

func dial(address string, config *tls.Config) (*connection, error) {
	socket, err := tls.DialWithDialer(&net.Dialer{Timeout: dialTimeout}, "tcp", address, config)
	if err != nil {
		return nil, err
	}
	return &connection{socket: socket, reader: bufio.NewReader(socket)}, nil
}

func (c *connection) askUntil(deadline time.Time, reviews []*review, first int) (map[int]int, error) {
	seen := map[int]int{}
	if err := c.socket.SetDeadline(deadline.Add(answerTimeout)); err != nil {
		return nil, err
	}
	for turn := first; ; turn++ {
		asked, sent := reviews[turn%len(reviews)], time.Now()
		if !sent.Before(deadline) {
			return seen, nil
		}
		if _, err := c.socket.Write(asked.request); err != nil {
			return nil, err
		}
		body, err := c.readAnswer()
		if err != nil {
			return nil, err
		}
		seen[int(time.Since(sent).Microseconds())]++
		if err := asked.check(body); err != nil {
			return nil, err
		}
	}
}

// readAnswer returns the body of a 200; the next call overwrites it.
func (c *connection) readAnswer() ([]byte, error) {
	line, err := c.readLine()
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
		return nil, fmt.Errorf("answered %q instead of 200", line)
	}
	length := -1
	for {
		if line, err = c.readLine(); err != nil {
			return nil, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 || length > maxAnswer {
		return nil, fmt.Errorf("answered with a Content-Length of %d (-1: none)", length)
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	_, err = io.ReadFull(c.reader, c.body)
	return c.body, err
}

func (c *connection) readLine() ([]byte, error) {
	line, err := c.reader.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// check returns an error unless the answer is for this review and has the correct decision.
func (r *review) check(body []byte) error {
	var got answer
	if err := json.Unmarshal(body, &got); err != nil {
		return fmt.Errorf("answered %q: %w", body, err)
	}
	isRight := got.Kind == "AdmissionReview" && got.Response.UID == r.UID && got.Response.Allowed == r.Allowed
	if !isRight || (!r.Allowed && got.Response.Status.Code != r.Code) {
		return fmt.Errorf("answered wrongly: want uid %s, allowed %t, code %d; got %s", r.UID, r.Allowed, r.Code, body)
	}
	return nil
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
