// Command argocd keeps what a file declares, with Argo CD's own engine: automated sync with prune and self-heal.
//
// Each round ends in one line of JSON on standard output: what was out of sync, and what a sync of it met.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

// How Argo CD tells its application's objects from others, by default.
const tracking = "argocd.argoproj.io/tracking-id"

// Argo CD's field manager.
const manager = "argocd-controller"

// What is asked for when nothing changes: a round at least that often.
const tick = time.Second

// One round.
type round struct {
	OutOfSync []string `json:"outOfSync"`
	Failed    []string `json:"failed"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the cluster's address and credentials")
	manifests := flag.String("manifests", "", "file with the objects, read in each round")
	namespace := flag.String("namespace", "", "namespace of objects that name none")
	serverSide := flag.Bool("server-side", false, "sync by server-side apply")
	flag.Parse()
	if err := run(*kubeconfig, *manifests, *namespace, *serverSide); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, manifests, namespace string, serverSide bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	objects := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()), cache.SetPopulateResourceInfoHandler(
		func(object *unstructured.Unstructured, _ bool) (any, bool) {
			id := object.GetAnnotations()[tracking]
			return id, id != ""
		},
	))
	syncer := engine.NewEngine(config, objects, engine.WithLogr(logr.Discard()))
	stop, err := syncer.Run()
	if err != nil {
		return err
	}
	defer stop()
	changed := make(chan struct{}, 1)
	objects.OnResourceUpdated(func(now, before *cache.Resource, _ map[kube.ResourceKey]*cache.Resource) {
		if isOurs(now) || isOurs(before) {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	out := json.NewEncoder(os.Stdout)
	for {
		done, err := once(objects, syncer, manifests, namespace, serverSide)
		if err != nil {
			done.Failed = append(done.Failed, err.Error())
		}
		if err := out.Encode(done); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(tick):
		}
	}
}

// Compares, and syncs what differs.
func once(objects cache.ClusterCache, syncer engine.GitOpsEngine, manifests, namespace string, serverSide bool) (round, error) {
	done := round{OutOfSync: []string{}, Failed: []string{}}
	text, err := os.ReadFile(manifests)
	if err != nil {
		return done, err
	}
	target, err := kube.SplitYAML(text)
	if err != nil {
		return done, err
	}
	for _, object := range target {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		key := kube.GetResourceKey(object)
		annotations[tracking] = "asya:" + key.String()
		object.SetAnnotations(annotations)
	}
	live, err := objects.GetManagedLiveObjs(target, isOurs)
	if err != nil {
		return done, err
	}
	pairs := sync.Reconcile(target, live, namespace, objects)
	compared, err := diff.DiffArray(pairs.Target, pairs.Live)
	if err != nil {
		return done, err
	}
	for i, each := range compared.Diffs {
		object := pairs.Target[i]
		if object == nil { // to be pruned
			object = pairs.Live[i]
		} else if !each.Modified {
			continue
		}
		done.OutOfSync = append(done.OutOfSync, object.GetKind()+"/"+object.GetName())
	}
	if len(done.OutOfSync) == 0 {
		return done, nil
	}
	results, err := syncer.Sync(context.Background(), target, isOurs, "revision", namespace,
		sync.WithPrune(true), sync.WithLogr(logr.Discard()),
		sync.WithServerSideApply(serverSide), sync.WithServerSideApplyManager(manager),
		sync.WithOperationSettings(false, true, false, false))
	for _, result := range results {
		if result.Status == common.ResultCodeSyncFailed {
			done.Failed = append(done.Failed, result.ResourceKey.String()+": "+result.Message)
		}
	}
	return done, err
}

func isOurs(object *cache.Resource) bool {
	if object == nil {
		return false
	}
	id, _ := object.Info.(string)
	return id != ""
}
