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
app.kubernetes.io/name: {{ include "asya-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "asya-operator.labels" -}}
{{ include "asya-operator.selectorLabels" . }}
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

{{- define "asya-operator.webhookName" -}}
{{- include "asya-operator.fullname" . | trunc 55 | trimSuffix "-" }}-webhook
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
