{{- define "weir.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}
{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "weir.host" -}}
{{ include "weir.name" . }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end }}
{{/* The plugin's configuration, with the backend that this chart has. */}}
{{- define "weir.configuration" -}}
{{- $c := deepCopy .root.Values.configuration }}
{{- if .root.Values.backend.enabled }}
{{- $b := dict "cluster" .cluster "authority" (include "weir.host" .root) }}
{{- if .token }}{{ $_ := set $b "token" .token }}{{ end }}
{{- $_ := set $c "backend" (merge (dict) (default (dict) $c.backend) $b) }}
{{- end }}
{{- toYaml $c }}
{{- end }}
