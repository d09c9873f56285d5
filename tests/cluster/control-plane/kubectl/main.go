// Command kubectl is a program of its own, because it starts in half the time
// without the control plane's packages, and tests start it a thousand times.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

func main() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
