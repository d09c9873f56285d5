{{/*
Rights in the namespaces of actors: everywhere, or in each of controller.watchNamespaces.
*/}}
{{- define "asya-operator.rulesInNamespaces" }}
- apiGroups: [asya.sh]
  resources: [asyncactors]
  verbs: [get, list, watch, patch]
- apiGroups: [asya.sh]
  resources: [asyncactors/status]
  verbs: [patch]
- apiGroups: [asya.sh] # what blockOwnerDeletion in an ownerReference asks for
  resources: [asyncactors/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps] # what nobody scales any more is woken once
  resources: [deployments/scale, statefulsets/scale]
  verbs: [get{{ if not .Values.controller.impersonate }}, patch{{ end }}]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch]
{{- if include "asya-operator.usesSqs" . }}
- apiGroups: [""] # accounts of actors with an IAM role
  resources: [serviceaccounts]
  verbs: [create, patch, delete]
{{- end }}
- apiGroups: [keda.sh]
  resources: [scaledobjects, triggerauthentications]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- include "asya-operator.secretRules" . }}
- apiGroups: [""] # only they tell that a volume cannot be mounted, or that a StatefulSet may make no pod
  resources: [events]
  verbs: [list, watch]
{{- if .Values.controller.impersonate }}
- apiGroups: [""] # what each namespace lets its own account do, and no more
  resources: [serviceaccounts]
  resourceNames: [asya-applier]
  verbs: [impersonate]
{{- end }}
{{- include "asya-operator.kindRules" . }}
{{- if .Values.webhook.enabled }}
- apiGroups: [""] # dry runs alone: templates/guard.yaml refuses others
  resources: [pods]
  verbs: [create]
- apiGroups: [""] # pods with the sidecar are judged by them: a change asks for another dry run
  resources: [resourcequotas, limitranges]
  verbs: [list, watch]
{{- if not .Values.controller.impersonate }}
- apiGroups: [""] # pods of bindings that no rollout replaces
  resources: [pods/eviction]
  verbs: [create]
{{- end }}
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch]
{{- end }}
{{- end }}

{{/*
The Secrets that the operator itself reads: by name, never listed. Of those that the transports name, urlSecretRef and
RabbitMQ's caSecretRef are for sidecars alone.
*/}}
{{- define "asya-operator.secretRules" }}
{{- $names := "" }}
{{- range $transport := fromJson (include "asya-operator.transports" .) }}
{{- $config := omit ($transport.config | default dict) "urlSecretRef" }}
{{- if eq ($transport.type | default "") "rabbitmq" }}
{{- $config = omit $config "caSecretRef" }}
{{- end }}
{{- $names = print $names (include "asya-operator.secretNames" $config) }}
{{- end }}
{{- with $names | trim | splitList " " | compact | uniq | sortAlpha }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
{{- end }}

{{/* Names in all keys SOMETHINGSecretRef of an object, whatever their depth, each followed by a space. */}}
{{- define "asya-operator.secretNames" }}
{{- range $key, $value := . }}
{{- if kindIs "map" $value }}
{{- if and (hasSuffix "SecretRef" $key) $value.name }}{{ $value.name }} {{ end }}
{{- include "asya-operator.secretNames" $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty where a transport is SQS. */}}
{{- define "asya-operator.usesSqs" }}
{{- range fromJson (include "asya-operator.transports" .) }}
{{- if eq (.type | default "") "sqs" }}true{{ end }}
{{- end }}
{{- end }}
