// flux-drift does with objects of a repository what Flux does: it prints the names of those that
// differ in the cluster (the drift detection of a HelmRelease), or applies them and prints the names
// of those that it has changed (a Kustomization).
//
// Standard input: {"ignore": [{"paths": […], "target": …}], "targets": […], "apply": false}. The
// variable KUBECONFIG names the cluster.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type input struct {
	Ignore []struct {
		Paths  []string
		Target jsondiff.Selector
	}
	Targets []map[string]any
	Apply   bool
}

func main() {
	var given input
	check(json.NewDecoder(os.Stdin).Decode(&given))
	rules := jsondiff.IgnoreRules{}
	for _, rule := range given.Ignore {
		rules = append(rules, jsondiff.IgnoreRule{Paths: rule.Paths, Selector: &rule.Target})
	}
	objects := []*unstructured.Unstructured{}
	for _, target := range given.Targets {
		objects = append(objects, &unstructured.Unstructured{Object: target})
	}
	if given.Apply {
		apply(objects, rules)
	} else {
		detect(objects, rules)
	}
}

func detect(objects []*unstructured.Unstructured, rules jsondiff.IgnoreRules) {
	owner := jsondiff.FieldOwner("helm-controller")
	found, err := jsondiff.UnstructuredList(context.Background(), cluster(), objects, owner, rules)
	check(err)
	for _, each := range found {
		if each.Type != jsondiff.DiffTypeNone {
			fmt.Printf("%s/%s\n", each.GroupVersionKind().Kind, each.GetName())
		}
	}
}

func apply(objects []*unstructured.Unstructured, rules jsondiff.IgnoreRules) {
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	manager := ssa.NewResourceManager(cluster(), nil, owner)
	options := ssa.DefaultApplyOptions()
	options.DriftIgnoreRules = rules
	changes, err := manager.ApplyAll(context.Background(), objects, options)
	check(err)
	for _, each := range changes.Entries {
		if each.Action != ssa.UnchangedAction {
			fmt.Println(each.Subject)
		}
	}
}

func cluster() client.Client {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err)
	config.QPS, config.Burst = 100, 200
	found, err := client.New(config, client.Options{})
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
