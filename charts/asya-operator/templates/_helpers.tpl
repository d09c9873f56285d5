{{- define "asya-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "asya-operator.fullname" -}}
{{- $name := include "asya-operator.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "asya-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "asya-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "asya-operator.labels" -}}
{{ include "asya-operator.selectorLabels" . }}
{{ include "asya-operator.releaseLabels" . }}
{{- end }}

{{- define "asya-operator.releaseLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "asya-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "asya-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "asya-operator.gatewayURL" -}}
{{- .Values.gatewayURL | default .Values.operator.gatewayURL }}
{{- end }}

{{/* JSON object of transports by name. An entry counts as a whole: two halves from two places would make a third. */}}
{{- define "asya-operator.transports" -}}
{{- $transports := dict }}
{{- range $place := list .Values.operator.transports .Values.transports }}
{{- range $name, $transport := $place }}
{{- if $transport }}
{{- $_ := set $transports $name $transport }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $transports }}
{{- end }}

{{/* A named file must exist, so the path at which the operator looks anyway is not passed on. */}}
{{- define "asya-operator.runtimeLocalPath" -}}
{{- if ne .Values.runtime.localPath "/runtime/asya_runtime.py" }}
{{- .Values.runtime.localPath }}
{{- end }}
{{- end }}

{{/* The webhook's pods must not carry the controller's labels: selectors of earlier releases would take them for its own. */}}
{{- define "asya-operator.webhook.selectorLabels" -}}
app.kubernetes.io/name: {{ include "asya-operator.name" . | trunc 55 | trimSuffix "-" }}-webhook
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "asya-operator.webhook.labels" -}}
{{ include "asya-operator.webhook.selectorLabels" . }}
{{ include "asya-operator.releaseLabels" . }}
{{- end }}

{{- define "asya-operator.webhook.fullname" -}}
{{- include "asya-operator.fullname" . | trunc 55 | trimSuffix "-" }}-webhook
{{- end }}

{{/* JSON list of what the webhook's certificate must name. */}}
{{- define "asya-operator.webhook.names" -}}
{{- $name := printf "%s.%s.svc" (include "asya-operator.webhook.fullname" .) .Release.Namespace }}
{{- list $name (printf "%s.cluster.local" $name) | toJson }}
{{- end }}

{{- define "asya-operator.webhook.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "asya-operator.webhook.fullname" .) .Values.webhook.serviceAccountName }}
{{- else }}
{{- default "default" .Values.webhook.serviceAccountName }}
{{- end }}
{{- end }}

{{/* The image of asya-sidecar beside the operator's: same registry and tag, without the digest, which is the operator's. */}}
{{- define "asya-operator.sidecarImage" -}}
{{- $folder := dir .Values.image.repository }}
{{- $tag := .Values.image.tag | splitList "@" | first | default .Chart.AppVersion }}
{{- if eq $folder "." }}{{ printf "asya-sidecar:%s" $tag }}{{ else }}{{ printf "%s/asya-sidecar:%s" $folder $tag }}{{ end }}
{{- end }}

{{/* What both programs read of the installation. */}}
{{- define "asya-operator.settings" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: ASYA_TRANSPORT_CONFIG
  value: {{ printf `{"transports":%s}` (include "asya-operator.transports" .) | quote }}
{{- with include "asya-operator.gatewayURL" . }}
- name: ASYA_GATEWAY_URL
  value: {{ . | quote }}
{{- end }}
- name: ASYA_OWN_SIDECAR_IMAGE
  value: {{ include "asya-operator.sidecarImage" . | quote }}
{{- with .Values.sidecar.image }}
- name: ASYA_SIDECAR_IMAGE
  value: {{ . | quote }}
{{- end }}
{{- with .Values.sidecar.defaultResources }}
- name: ASYA_SIDECAR_DEFAULT_RESOURCES
  value: {{ toJson . | quote }}
{{- end }}
{{- if .Values.sidecar.allowPrivileged }}
- name: ASYA_PRIVILEGED_SIDECARS
  value: "true"
{{- end }}
{{- with .Values.binding.runtimeImage }}
- name: ASYA_BINDING_RUNTIME_IMAGE
  value: {{ . | quote }}
{{- end }}
{{- if .Values.binding.openshift }}
- name: ASYA_OPENSHIFT
  value: "true"
{{- end }}
{{- end }}

{{/* Labels of a pod: its own stay, whatever podLabels say, so that selectors match the same pods. */}}
{{- define "asya-operator.podLabels" -}}
{{- $own := include (printf "asya-operator.%s" .own) .root | fromYaml }}
{{- merge (dict) $own (.root.Values.podLabels | default dict) | toYaml }}
{{- end }}

{{- define "asya-operator.uninstall.selectorLabels" -}}
app.kubernetes.io/name: {{ include "asya-operator.name" . | trunc 53 | trimSuffix "-" }}-uninstall
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The labels by which the pod of `helm test` is found. */}}
{{- define "asya-operator.ready.selectorLabels" -}}
app.kubernetes.io/name: {{ include "asya-operator.name" . | trunc 57 | trimSuffix "-" }}-ready
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "asya-operator.ready.labels" -}}
{{ include "asya-operator.ready.selectorLabels" . }}
{{ include "asya-operator.releaseLabels" . }}
{{- end }}

{{/* What lets `helm test` ask for readiness where a policy names other sources; without sources, all are allowed. */}}
{{- define "asya-operator.ready.ingress" -}}
{{- if .Values.networkPolicy.metricsFrom }}
- ports: # `helm test`
    - port: {{ .Values.health.port }}
  from:
    - podSelector:
        matchLabels:
          {{- include "asya-operator.ready.selectorLabels" . | nindent 10 }}
{{- end }}
{{- end }}

{{/* Refuses what the schema cannot compare, or only without a reason. */}}
{{- define "asya-operator.refusals" -}}
{{- range .Values.env }}
{{- if or (hasPrefix "ASYA_" .name) (has .name (list "POD_NAME" "POD_NAMESPACE")) }}
{{- fail (printf "env names %s, which the chart itself sets, from its other values" .name) }}
{{- end }}
{{- end }}
{{- $guard := and .Values.rbac.create .Values.rbac.guard }}
{{- range .Values.controller.watchNamespaces }}
{{- if and $guard (hasPrefix "kube-" .) (ne . $.Release.Namespace) }}
{{- fail (printf "controller.watchNamespaces names %s, where rbac.guard lets the operator write nothing; move its actors to a namespace of their own" .) }}
{{- end }}
{{- if and $.Values.webhook.enabled (has . (list "kube-system" "kube-public" "kube-node-lease")) }}
{{- fail (printf "controller.watchNamespaces names %s, which the webhook never serves; move its actors to a namespace of their own" .) }}
{{- end }}
{{- end }}
{{- $scripts := .Values.runtime.namespace }}
{{- if and $guard (hasPrefix "kube-" $scripts) (ne $scripts .Release.Namespace) }}
{{- fail (printf "runtime.namespace is %s, where rbac.guard lets the operator write nothing; choose another namespace" $scripts) }}
{{- end }}
{{- $health := int .Values.health.port }}
{{- if and .Values.metrics.enabled (eq (int .Values.metrics.port) $health) }}
{{- fail (printf "metrics.port and health.port are both %d: a pod cannot serve both on one port" $health) }}
{{- end }}
{{- if and .Values.webhook.enabled (eq (int .Values.webhook.port) $health) }}
{{- fail (printf "webhook.port and health.port are both %d: a pod cannot serve both on one port" $health) }}
{{- end }}
{{- if and .Values.webhook.enabled (eq 443 $health) }}
{{- fail "health.port is 443, as is the port of the webhook's Service: a Service cannot have one port twice" }}
{{- end }}
{{- end }}

{{/* Replicas of the webhook. */}}
{{- define "asya-operator.webhook.replicas" -}}
{{- max (ternary 3 0 .Values.ha.enabled) (int .Values.webhook.replicaCount) }}
{{- end }}

{{/* Where pods of either program may run. */}}
{{- define "asya-operator.scheduling" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
