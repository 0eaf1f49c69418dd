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

{{/*
The data of the Secrets by their use: instance, access, tls. Random values are generated once: an upgrade keeps those
that the cluster has, and all templates of one rendering get the same ones.
*/}}
{{- define "cornserve.secretData" -}}
{{- if not (hasKey .Values "secretData") -}}
{{- $data := dict -}}
{{- $_ := set $data "instance" (include "cornserve.instanceData" . | fromYaml) -}}
{{- $_ := set $data "access" (include "cornserve.accessData" . | fromYaml) -}}
{{- $_ := set $data "tls" (include "cornserve.tlsData" . | fromYaml) -}}
{{- $_ := set .Values "secretData" $data -}}
{{- end -}}
{{- toYaml .Values.secretData -}}
{{- end -}}

{{/* A Secret of the cluster, decoded: (dict "root" $ "name" "…"). Empty if it does not exist. */}}
{{- define "cornserve.existingData" -}}
{{- $decoded := dict -}}
{{- if .name -}}
{{- range $key, $value := (lookup "v1" "Secret" .root.Release.Namespace .name).data -}}
{{- $_ := set $decoded $key ($value | b64dec) -}}
{{- end -}}
{{- end -}}
{{- toYaml $decoded -}}
{{- end -}}

{{- define "cornserve.instanceData" -}}
{{- $data := include "cornserve.existingData" (dict "root" . "name" (include "cornserve.instanceSecretName" .)) | fromYaml -}}
{{- if not .Values.instanceSecret.existingSecret -}}
{{- $_ := set $data "secret" (.Values.instanceSecret.value | default $data.secret | default (randBytes 32 | sha256sum)) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{- define "cornserve.accessData" -}}
{{- $data := include "cornserve.existingData" (dict "root" . "name" (include "cornserve.accessSecretName" .)) | fromYaml -}}
{{- if not .Values.access.existingSecret -}}
{{- $_ := set $data "admin-token" (.Values.access.adminToken | default (index $data "admin-token") | default (randBytes 32 | sha256sum)) -}}
{{- $_ := set $data "metrics-key" (index $data "metrics-key" | default (randBytes 32 | sha256sum)) -}}
{{- $keys := .Values.access.apiKeys -}}
{{- if $keys -}}
{{- $_ := unset $data "api-key" -}}
{{- else -}}
{{- $_ := set $data "api-key" (index $data "api-key" | default (randBytes 32 | sha256sum)) -}}
{{- $keys = list (index $data "api-key") -}}
{{- end -}}
{{- $_ := set $data "api-keys" (printf "%s\n# for Prometheus\n%s\n" (join "\n" $keys) (index $data "metrics-key")) -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{- define "cornserve.tlsData" -}}
{{- $name := include "cornserve.tlsSecretName" . -}}
{{- $data := include "cornserve.existingData" (dict "root" . "name" $name) | fromYaml -}}
{{- if and $name (not .Values.internalTls.existingSecret) (not (index $data "tls.key")) -}}
{{- $days := int .Values.internalTls.validDays -}}
{{- $authority := genCA (printf "%s-authority" (include "cornserve.fullname" .)) $days -}}
{{- $certificate := genSignedCert (include "cornserve.fullname" .) nil nil $days $authority -}}
{{- $data = dict "ca.crt" $authority.Cert "tls.crt" $certificate.Cert "tls.key" $certificate.Key -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}

{{/* The checksum of a Secret's data. Pods restart when it changes: (dict "root" $ "use" "instance"). */}}
{{- define "cornserve.secretChecksum" -}}
{{- $data := include "cornserve.secretData" .root | fromYaml -}}
{{- index $data .use | toYaml | sha256sum -}}
{{- end -}}
