package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

const attempts = 30

// chain is the part of kube-apiserver's admission that policies and webhooks belong to, with the
// objects of one contender.
type chain struct {
	name       string
	interfaces admission.ObjectInterfaces
	stages     []stage
	calls      *callCounter
}

// stage is one plugin, or the second turn that the API server gives it for an object that another
// one has changed.
type stage struct {
	name string
	run  func(context.Context, admission.Attributes, admission.ObjectInterfaces) error
}

type plugin interface {
	admission.InitializationValidator
	admission.Interface
	WaitForReady() bool
}

// newChain returns a chain whose plugins have read all objects.
func newChain(ctx context.Context, name string, objects []kruntime.Object) (*chain, error) {
	calls := &callCounter{}
	mutatingPolicies, err := mutatingpolicy.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	mutatingWebhooks, err := mutatingwebhook.NewMutatingWebhook(nil)
	if err != nil {
		return nil, err
	}
	validatingPolicies, err := validatingpolicy.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	validatingWebhooks, err := validatingwebhook.NewValidatingAdmissionWebhook(nil)
	if err != nil {
		return nil, err
	}
	mutatingWebhooks.SetAuthenticationInfoResolverWrapper(calls.wrap)
	validatingWebhooks.SetAuthenticationInfoResolverWrapper(calls.wrap)

	client := &clientset{fake.NewClientset(objects...)}
	shared := informers.NewSharedInformerFactory(client, 0)
	initialize := initializer.New(
		client, fakedynamic.NewSimpleDynamicClient(scheme.Scheme), shared, everyoneMay{},
		utilfeature.DefaultFeatureGate, nil, ctx.Done(), meta.NewDefaultRESTMapper(nil),
	)
	plugins := []plugin{mutatingPolicies, mutatingWebhooks, validatingPolicies, validatingWebhooks}
	for _, each := range plugins {
		initialize.Initialize(each)
		if err := each.ValidateInitialization(); err != nil {
			return nil, err
		}
	}
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	for _, each := range plugins {
		// It waits ten seconds, and a busy machine needs longer to compile all expressions.
		for attempt := 1; !each.WaitForReady(); attempt++ {
			if attempt == attempts {
				return nil, errors.New("a plugin does not become ready")
			}
		}
	}
	return &chain{
		name:       name,
		interfaces: admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme),
		calls:      calls,
		stages: []stage{
			{"mutating policies", mutatingPolicies.Admit},
			{"mutating webhooks", mutatingWebhooks.Admit},
			{"mutating policies again", again(mutatingPolicies.Admit)},
			{"mutating webhooks again", again(mutatingWebhooks.Admit)},
			{"validating policies", validatingPolicies.Validate},
			{"validating webhooks", validatingWebhooks.Validate},
		},
	}, nil
}

type admit = func(context.Context, admission.Attributes, admission.ObjectInterfaces) error

// again does what the API server does after the first turn of all plugins: if one has changed the
// object, each has a second turn.
func again(first admit) admit {
	return func(ctx context.Context, attributes admission.Attributes, interfaces admission.ObjectInterfaces) error {
		reinvocation := attributes.GetReinvocationContext()
		if !reinvocation.ShouldReinvoke() {
			return nil
		}
		reinvocation.SetIsReinvoke()
		return first(ctx, attributes, interfaces)
	}
}

// callCounter refuses every call of a webhook, and counts them. It refuses the request and not the
// configuration of the client: a plugin keeps a webhook's client for ever, and also the error of one
// that could not be made. All calls after the first would fail before they are sent, and not count.
type callCounter struct{ count atomic.Int64 }

func (c *callCounter) wrap(webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
	return c
}

func (c *callCounter) ClientConfigFor(string) (*rest.Config, error) {
	return &rest.Config{WrapTransport: func(http.RoundTripper) http.RoundTripper { return c }}, nil
}

func (c *callCounter) ClientConfigForService(string, string, int) (*rest.Config, error) {
	return c.ClientConfigFor("")
}

func (c *callCounter) RoundTrip(*http.Request) (*http.Response, error) {
	c.count.Add(1)
	return nil, errors.New("webhooks are not called here")
}

// everyoneMay is an authorizer that allows everything. A check costs nothing here.
type everyoneMay struct{ authorizer.Authorizer }

func (everyoneMay) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// clientset is a client whose API server has a schema of pods: a policy that mutates them asks for
// it, and a JSON patch does not use it.
type clientset struct{ *fake.Clientset }

func (c *clientset) Discovery() discovery.DiscoveryInterfaces {
	return described{c.Clientset.Discovery()}
}

type described struct{ discovery.DiscoveryInterfaces }

func (described) OpenAPIV3() openapi.Client { return schemas{} }

type schemas struct{}

func (schemas) Paths() (map[string]openapi.GroupVersion, error) {
	return map[string]openapi.GroupVersion{"api/v1": schemas{}}, nil
}

func (schemas) Schema(string) ([]byte, error) {
	return []byte(`{"openapi": "3.0.0", "components": {"schemas": {"Pod": {"type": "object",
		"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]}}}}`), nil
}

func (schemas) ServerRelativeURL() string { return "" }
