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

{{/* The arguments of the Job that fills the Secrets of the chart. Empty if users give all of them. */}}
{{- define "cornserve.generatedSecrets" -}}
{{- if not .Values.instanceSecret.existingSecret }}
- --instance={{ include "cornserve.instanceSecretName" . }}
{{- end }}
{{- if not .Values.access.existingSecret }}
- --access={{ include "cornserve.accessSecretName" . }}
{{- end }}
{{- if and .Values.internalTls.enabled (not .Values.internalTls.existingSecret) }}
- --tls={{ include "cornserve.tlsSecretName" . }}
- --tls-days={{ int .Values.internalTls.validDays }}
{{- end }}
{{- end -}}
