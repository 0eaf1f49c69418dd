{{- define "cornserve.instanceSecretName" -}}
{{- .Values.instanceSecret.existingSecret | default (printf "%s-instance" (include "cornserve.fullname" .)) -}}
{{- end -}}

{{- define "cornserve.accessSecretName" -}}
{{- .Values.access.existingSecret | default (printf "%s-access" (include "cornserve.fullname" .)) -}}
{{- end -}}

{{/* The name of the Secret with the certificate. Empty without TLS. */}}
{{- define "cornserve.tlsSecretName" -}}
{{- if .Values.internalTls.enabled -}}
{{- .Values.internalTls.existingSecret | default (printf "%s-tls" (include "cornserve.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{/* The volume with the certificate. A pod waits until the Secret has all files. */}}
{{- define "cornserve.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ include "cornserve.tlsSecretName" . }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]
{{- end -}}

{{/* The names of the Secrets that the Job fills, by their use, as YAML. Empty if users give all of them. */}}
{{- define "cornserve.generatedSecrets" -}}
{{- if not .Values.access.existingSecret }}
access: {{ include "cornserve.accessSecretName" . | quote }}
{{- end }}
{{- if not .Values.instanceSecret.existingSecret }}
instance: {{ include "cornserve.instanceSecretName" . | quote }}
{{- end }}
{{- if and .Values.internalTls.enabled (not .Values.internalTls.existingSecret) }}
tls: {{ include "cornserve.tlsSecretName" . | quote }}
{{- end }}
{{- end -}}
