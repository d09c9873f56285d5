// Command node runs one part of a Kubernetes node, chosen by argv[0] (a link named kubelet or kube-proxy) or by the
// first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Constructors, not commands: each installs the process's only signal handler.
var parts = map[string]func() *cobra.Command{
	"kubelet":    func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy": func() *cobra.Command { return proxy.NewProxyCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	if parts[name] == nil && len(os.Args) > 1 { // called by its own name
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	newCommand, ok := parts[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}
