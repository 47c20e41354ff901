// argocd-diff compares objects of a cluster with those of a repository as Argo CD does for an
// Application with server-side apply, and prints the names of those that are out of sync.
//
// Standard input: {"ignoreDifferences": […], "pairs": [{"live": …, "target": …}]}. The variable
// KUBECONFIG names the cluster, whose schemas it reads.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-openapi/pkg/util/proto"
)

type input struct {
	IgnoreDifferences v1alpha1.IgnoreDifferences
	Pairs             []struct{ Live, Target map[string]any }
}

func main() {
	var given input
	check(json.NewDecoder(os.Stdin).Decode(&given))
	config, err := diff.NewDiffConfigBuilder().
		WithDiffSettings(given.IgnoreDifferences, nil, true, normalizers.IgnoreNormalizerOpts{}).
		WithTracking("app.kubernetes.io/instance", string(v1alpha1.TrackingMethodAnnotation)).
		WithStructuredMergeDiff(true).
		WithManager("argocd-controller").
		WithGVKParser(schemas()).
		WithNoCache().
		Build()
	check(err)
	for _, pair := range given.Pairs {
		live := &unstructured.Unstructured{Object: pair.Live}
		target := &unstructured.Unstructured{Object: pair.Target}
		result, err := diff.StateDiff(live, target, config)
		check(err)
		if result.Modified {
			fmt.Printf("%s/%s\n", target.GetKind(), target.GetName())
		}
	}
}

func schemas() *managedfields.GvkParser {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	check(err)
	document, err := client.OpenAPISchema()
	check(err)
	models, err := proto.NewOpenAPIData(document)
	check(err)
	parser, err := managedfields.NewGVKParser(models, false)
	check(err)
	return parser
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
