{{/* The name of the image: its digest holds over its tag. */}}
{{- define "reprieve.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The namespaces that may read the metrics. */}}
{{- define "reprieve.metricsNamespaces" -}}
{{ .Values.metrics.namespaceSelector | default (dict "matchLabels" (dict "metrics" "enabled")) | toYaml }}
{{- end }}

{{/* The users whose deletions of pods are preemptions, as a list in CEL. */}}
{{- define "reprieve.schedulers" -}}
['{{ regexReplaceAll " *, *" (get (.Values.policy | default (dict)) "schedulers" | default "system:kube-scheduler, system:serviceaccount:reprieve-system:reprieve-scheduler" | trim) "', '" }}']
{{- end }}
