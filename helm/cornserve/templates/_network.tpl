{{/* A peer: the pods of a component of the installation: (dict "root" $ "component" "…"). */}}
{{- define "cornserve.peer" -}}
- podSelector:
    matchLabels:
      {{- include "cornserve.selectorLabels" . | nindent 6 }}
{{- end -}}

{{/* A peer: the pods of executors, which have further names in `app.kubernetes.io/name`. */}}
{{- define "cornserve.executorPeer" -}}
- podSelector:
    matchExpressions: [{key: cornserve.ai/executor, operator: Exists}]
{{- end -}}

{{/* The ports at which executors accept UCX over TCP. The controller sets the same range. */}}
{{- define "cornserve.ucxPorts" -}}
{port: 10000, endPort: 14095}
{{- end -}}

{{/*
The outgoing connections of a pod: (dict "root" $ "gateways" true "executors" true "metrics" true "ucx" true "apiServer" true).
*/}}
{{- define "cornserve.egress" -}}
{{- $egress := .root.Values.networkPolicies.egress -}}
{{- if $egress.enabled -}}
egress:
  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
  {{- if .gateways }}
  - ports: [{port: 8000}]
    to:
      {{- include "cornserve.peer" (dict "root" .root "component" "gateway") | nindent 6 }}
  {{- end }}
  {{- if .executors }}
  - ports: [{port: 9000}{{ if .metrics }}, {port: 9002}{{ end }}
      {{- if and .ucx (eq .root.Values.executors.transport "ucx") }}, {{ include "cornserve.ucxPorts" .root }}{{ end }}]
    to:
      {{- include "cornserve.executorPeer" .root | nindent 6 }}
  {{- end }}
  {{- if .apiServer }}
  {{- with $egress.apiServer }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with $egress.external }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "cornserve.policyTypes" -}}
[Ingress{{ if .Values.networkPolicies.egress.enabled }}, Egress{{ end }}]
{{- end -}}
