{{/*
Rights on kinds of other controllers, for each key of binding.kinds: what is read, and what else is done. A row of the operator's table
reads what leads from a target to its workload, too.
*/}}
{{- define "asya-operator.kinds" }}
workspaces:
  - {apiGroups: [kaito.sh], resources: [workspaces]}
inferenceSets:
  - {apiGroups: [kaito.sh], resources: [inferencesets, workspaces]}
  - {apiGroups: [kaito.sh], resources: [inferencesets/scale], verbs: [get, patch]}
inferenceServices:
  - {apiGroups: [serving.kserve.io], resources: [inferenceservices], also: [patch]}
  - {apiGroups: [serving.knative.dev], resources: [services, configurations, revisions]}
llmInferenceServices:
  - {apiGroups: [serving.kserve.io], resources: [llminferenceservices], also: [patch]}
  - {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets]}
  - {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets/scale], verbs: [get, patch]}
rayClusters:
  - {apiGroups: [ray.io], resources: [rayclusters]}
rayServices:
  - {apiGroups: [ray.io], resources: [rayservices, rayclusters]}
knativeServices:
  - {apiGroups: [serving.knative.dev], resources: [services], also: [patch]}
  - {apiGroups: [serving.knative.dev], resources: [configurations, revisions]}
seldonDeployments:
  - {apiGroups: [machinelearning.seldon.io], resources: [seldondeployments]}
seldonServers:
  - {apiGroups: [mlops.seldon.io], resources: [servers, models]}
  - {apiGroups: [mlops.seldon.io], resources: [servers/scale], verbs: [get, patch]}
bentoDeployments:
  - {apiGroups: [serving.yatai.ai], resources: [bentodeployments], also: [patch]}
leaderWorkerSets:
  - {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets]}
  - {apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets/scale], verbs: [get, patch]}
others:
  - {apiGroups: [apps], resources: [daemonsets, replicasets]}
{{- end }}

{{/*
The rules of the kinds that are switched on.
*/}}
{{- define "asya-operator.kindRules" }}
{{- $kinds := fromYaml (include "asya-operator.kinds" .) }}
{{- range $kind := keys $kinds | sortAlpha }}
{{- if index $.Values.binding.kinds $kind }}
{{- range $rule := index $kinds $kind }}
{{- $verbs := $rule.verbs | default (concat (list "get" "list" "watch") ($rule.also | default list)) }}
{{- if $.Values.controller.impersonate }}{{- /* asya-applier of each namespace writes to targets */}}
{{- $verbs = without $verbs "patch" }}
{{- end }}
- apiGroups: {{ $rule.apiGroups | toJson }} # binding.kinds.{{ $kind }}
  resources: {{ $rule.resources | toJson }}
  verbs: {{ $verbs | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
