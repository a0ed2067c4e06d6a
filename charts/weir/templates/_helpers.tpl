{{/* A Service's name has no dot, and begins with a letter. What is changed or cut has a hash, so that two releases have two names. */}}
{{- define "weir.name" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- $name = ternary (printf "weir-%s" $name) $name (regexMatch "^[0-9]" $name) }}
{{- if or (ne $name .Release.Name) (gt (len $name) 50) }}
{{- $name = printf "%s-%s" (regexReplaceAll "-+$" (trunc 41 $name) "") (sha256sum .Release.Name | trunc 8) }}
{{- end }}
{{- $name -}}
{{- end }}
{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- define "weir.host" -}}
{{ include "weir.name" . }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end }}
{{/* The plugin's configuration, with this chart's backend. */}}
{{- define "weir.configuration" -}}
{{- $c := deepCopy .root.Values.configuration }}
{{- if regexMatch "\"if\":\"" (toJson $c.rules) }}
{{- fail "configuration: Helm knows no CEL, want the conditions that weir compile makes of each if" }}
{{- end }}
{{- if .root.Values.backend.enabled }}
{{- $b := dict "cluster" .cluster "authority" (include "weir.host" .root) }}
{{- if .token }}{{ $_ := set $b "token" .token }}{{ end }}
{{- $_ := set $c "backend" (merge (dict) (default (dict) $c.backend) $b) }}
{{- end }}
{{- toYaml $c }}
{{- end }}
{{/* What an Istio resource is for: targetRefs, or pods by labels. */}}
{{- define "weir.target" -}}
{{- if .of.targetRefs -}}
targetRefs: {{- toYaml .of.targetRefs | nindent 2 }}
{{- else -}}
{{- $labels := .of.selector }}
{{- if kindIs "invalid" $labels }}{{ $labels = dict "istio" "ingressgateway" }}{{ end }}
{{- with $labels -}}
{{ $.selector }}:
  {{ $.labels }}: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}
{{/* An image with its tag, or with its digest if the tag is sha256:…. */}}
{{- define "weir.image" -}}
{{- $tag := .tag | default .version -}}
{{ .name }}{{ ternary "@" ":" (hasPrefix "sha256:" $tag) }}{{ $tag }}
{{- end }}
{{/* What --max-memory gets of a container's memory limit: 0.6 of it. The rest is for code, connections and messages. */}}
{{- define "weir.counterMemory" -}}
{{- $bytes := . }}
{{- if kindIs "string" . }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 }}
{{- $unit := regexFind "[A-Za-z]*$" . }}
{{- if not (and (regexMatch "^[0-9]+(\\.[0-9]+)?[A-Za-z]*$" .) (hasKey $units $unit)) }}
{{- fail (printf "backend.resources.limits.memory: want bytes, or a number of k, M, G, Ki, Mi or Gi, got %s" .) }}
{{- end }}
{{- $bytes = mulf (trimSuffix $unit . | float64) (get $units $unit) }}
{{- end }}
{{- mulf $bytes 0.6 | floor | int64 }}
{{- end }}
{{- define "weir.plugin" -}}
{{ include "weir.image" (dict "name" .Values.plugin.image "tag" .Values.plugin.tag "version" .Chart.AppVersion) }}
{{- end }}
