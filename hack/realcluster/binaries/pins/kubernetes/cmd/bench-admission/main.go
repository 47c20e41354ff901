// Command bench-admission measures what policies and webhook configurations cost an API server for a new
// pod: the processor time of kube-apiserver's own admission plugins, in one process.
//
// The rest of an API server (HTTP, decoding, storage) is left out: it costs many times the
// difference between two policies. No webhook is called: each call is made up to its request, which
// is counted and fails.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

// turn is one contender's turn in one round: what each plugin took for all pods of one kind.
type turn struct {
	Contender   string             `json:"contender"`
	Pods        string             `json:"pods"`
	Round       int                `json:"round"`
	Count       int                `json:"count"`
	Calls       int64              `json:"calls"` // of webhooks, none of which is answered: not comparable
	Seconds     map[string]float64 `json:"seconds"`
	Allocations map[string]uint64  `json:"allocations"`
	Bytes       map[string]uint64  `json:"bytes"`
}

// outcome is what a contender makes of one pod: it shows which rules a contender checks.
type outcome struct {
	Contender string            `json:"contender"`
	Pod       string            `json:"pod"`
	Refused   string            `json:"refused"`
	Warnings  []string          `json:"warnings"`
	Calls     int64             `json:"calls"`
	Labels    map[string]string `json:"labels"`
}

type options struct {
	policies, pods             namedFiles
	namespace, probes, profile string
	count, rounds              int
}

func main() {
	var asked options
	flag.Var(&asked.policies, "policies", "NAME=FILE: a contender and its objects, one a line; repeatable")
	flag.Var(&asked.pods, "pods", "NAME=FILE: pods of one kind that are created, one a line; repeatable")
	flag.StringVar(&asked.namespace, "namespace", "", "file with the pods' Namespace")
	flag.StringVar(&asked.probes, "probes", "", "file with pods, one a line, of which only the outcome is wanted")
	flag.IntVar(&asked.count, "count", 1000, "creations in a turn")
	flag.IntVar(&asked.rounds, "rounds", 7, "turns of each contender with each kind of pods")
	flag.StringVar(&asked.profile, "profile", "", "file for a profile of all turns")
	flag.Parse()
	log.SetFlags(0)
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	if err := run(asked); err != nil {
		log.Fatal(err)
	}
}

func run(asked options) error {
	// The garbage is collected between the turns: a collection takes as long as thousands of
	// creations, and would be in the turn of the contender that happens to cause it.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var namespace corev1.Namespace
	data, err := os.ReadFile(asked.namespace)
	if err == nil {
		err = json.Unmarshal(data, &namespace)
	}
	if err != nil {
		return err
	}
	var chains []*chain
	for _, contender := range asked.policies {
		objects, err := readObjects(contender.file)
		if err != nil {
			return err
		}
		made, err := newChain(ctx, contender.name, append(objects, &namespace))
		if err != nil {
			return fmt.Errorf("%s: %w", contender.name, err)
		}
		chains = append(chains, made)
	}
	if err := judgeAll(ctx, chains, asked.probes, namespace.Name); err != nil {
		return err
	}
	if asked.profile != "" {
		file, err := os.Create(asked.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return measureAll(ctx, chains, asked, namespace.Name)
}

func judgeAll(ctx context.Context, chains []*chain, file, namespace string) error {
	if file == "" {
		return nil
	}
	pods, err := readPods(file)
	if err != nil {
		return err
	}
	for _, made := range chains {
		for _, pod := range pods {
			if err := print(made.judge(ctx, pod, namespace)); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureAll writes a line for each turn but those of the first round, which fills caches.
func measureAll(ctx context.Context, chains []*chain, asked options, namespace string) error {
	for round := 0; round <= asked.rounds; round++ {
		for _, kind := range asked.pods {
			pods, err := readPods(kind.file)
			if err != nil {
				return err
			}
			for index := range chains {
				made := chains[(index+round)%len(chains)]
				measured, err := made.measure(ctx, pods, namespace, asked.count)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", made.name, kind.name, err)
				}
				measured.Pods, measured.Round = kind.name, round
				if round == 0 {
					continue
				}
				if err := print(measured); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measure creates pods. Each plugin sees all of them before the next one does, so that what it
// takes is long enough to be measured.
func (c *chain) measure(ctx context.Context, pods []*core.Pod, namespace string, count int) (turn, error) {
	measured := turn{
		Contender: c.name, Count: count,
		Seconds: map[string]float64{}, Allocations: map[string]uint64{}, Bytes: map[string]uint64{},
	}
	created := make([]admission.Attributes, count)
	for index := range created {
		created[index] = newAttributes(pods[index%len(pods)], namespace)
	}
	for _, each := range c.stages {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		taken := processorTime()
		for _, attributes := range created {
			if err := each.run(ctx, attributes, c.interfaces); err != nil {
				return measured, err
			}
		}
		measured.Seconds[each.name] = (processorTime() - taken).Seconds()
		runtime.ReadMemStats(&after)
		measured.Allocations[each.name] = after.Mallocs - before.Mallocs
		measured.Bytes[each.name] = after.TotalAlloc - before.TotalAlloc
	}
	measured.Calls = c.calls.count.Swap(0)
	return measured, nil
}

// judge creates one pod.
func (c *chain) judge(ctx context.Context, pod *core.Pod, namespace string) outcome {
	warnings := &recorder{texts: []string{}}
	ctx = warning.WithWarningRecorder(ctx, warnings)
	attributes := newAttributes(pod, namespace)
	found := outcome{Contender: c.name, Pod: pod.GenerateName}
	for _, each := range c.stages {
		if err := each.run(ctx, attributes, c.interfaces); err != nil {
			found.Refused = err.Error()
			break
		}
	}
	found.Calls = c.calls.count.Swap(0)
	found.Warnings, found.Labels = warnings.texts, attributes.GetObject().(*core.Pod).Labels
	return found
}

func newAttributes(pod *core.Pod, namespace string) admission.Attributes {
	created := pod.DeepCopy()
	created.Namespace = namespace
	return admission.NewAttributesRecord(
		created, nil,
		schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, namespace, "",
		schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "",
		admission.Create, &metav1.CreateOptions{}, true,
		&user.DefaultInfo{Name: "alice", Groups: []string{"developers", user.AllAuthenticated}},
	)
}

type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func print(line any) error { return json.NewEncoder(os.Stdout).Encode(line) }

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }

type namedFile struct{ name, file string }

type namedFiles []namedFile

func (f *namedFiles) String() string { return fmt.Sprint(*f) }

func (f *namedFiles) Set(value string) error {
	name, file, found := strings.Cut(value, "=")
	if !found {
		return fmt.Errorf("%q is not NAME=FILE", value)
	}
	*f = append(*f, namedFile{name, file})
	return nil
}
