// Command pause is the sandbox process of a pod on the real node: it holds the pod's namespaces and sleeps.
//
// It is in the tree because the usual image comes from a registry, and the real node must start without one.
// With a shared process namespace it is PID 1 of the pod, so it also reaps what its neighbours leave behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			// One SIGCHLD may stand for several children, so reap until none is left.
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
