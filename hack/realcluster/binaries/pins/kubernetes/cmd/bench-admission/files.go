package main

import (
	"bytes"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/core"
)

// readPods returns pods as an API server has them before admission: in its internal version, with
// the defaults of their fields.
func readPods(file string) ([]*core.Pod, error) {
	var pods []*core.Pod
	err := eachLine(file, func(line []byte) error {
		decoded, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), line)
		if pod, isPod := decoded.(*core.Pod); isPod {
			pods = append(pods, pod)
		}
		return err
	})
	return pods, err
}

// readObjects returns policies and webhook configurations as informers have them: in version v1,
// with the defaults of their fields.
func readObjects(file string) ([]runtime.Object, error) {
	var objects []runtime.Object
	err := eachLine(file, func(line []byte) error {
		decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), line)
		if err == nil {
			legacyscheme.Scheme.Default(decoded)
			objects = append(objects, decoded)
		}
		return err
	})
	return objects, err
}

func eachLine(file string, use func([]byte) error) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		if err := use(line); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}
