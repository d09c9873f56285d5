// Command controlplane runs one part of a Kubernetes control plane, chosen by
// argv[0] (a link named etcd, kube-apiserver, ...) or by the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Constructors, not commands: NewAPIServerCommand installs the process's only
// signal handler, and a second installation panics.
var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	if name != "etcd" && parts[name] == nil { // called by its own name
		if len(os.Args) < 2 {
			usage()
		}
		name = os.Args[1]
		os.Args = os.Args[1:] // cobra and etcd both read os.Args[1:]
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	newCommand, ok := parts[name]
	if !ok {
		usage()
	}
	os.Exit(cli.Run(newCommand()))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler [flags]")
	os.Exit(2)
}
