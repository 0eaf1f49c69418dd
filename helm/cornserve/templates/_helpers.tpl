{{/* The name of the instance, and the first part of the name of each object. */}}
{{- define "cornserve.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of an object of the whole cluster: (dict "root" $ "name" "…"). */}}
{{- define "cornserve.clusterName" -}}
{{- printf "%s-%s-%s" .root.Release.Namespace (include "cornserve.fullname" .root) .name -}}
{{- end -}}

{{/* The base URL of the API in the cluster. */}}
{{- define "cornserve.url" -}}
{{- $port := int .Values.gateway.service.port -}}
http://{{ include "cornserve.fullname" . }}.{{ .Release.Namespace }}.svc{{ if ne $port 80 }}:{{ $port }}{{ end }}/v1
{{- end -}}

{{/* The labels that select the pods of a component: (dict "root" $ "component" "…"). */}}
{{- define "cornserve.selectorLabels" -}}
app.kubernetes.io/name: cornserve
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All recommended labels: (dict "root" $ "component" "…"). */}}
{{- define "cornserve.labels" -}}
{{ include "cornserve.selectorLabels" . }}
app.kubernetes.io/part-of: cornserve
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of a pod: (dict "root" $ "component" "…"). Without the chart's version, which would roll the pods. */}}
{{- define "cornserve.podLabels" -}}
{{ include "cornserve.selectorLabels" . }}
app.kubernetes.io/part-of: cornserve
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with (index .root.Values .component).podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image: (dict "root" $ "image" .Values.images.…). */}}
{{- define "cornserve.image" -}}
{{- $images := .root.Values.images -}}
{{- $name := .image.repository -}}
{{- if $images.registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" $images.registry) $name -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($images.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "cornserve.pullSecrets" -}}
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end -}}

{{/* What Pod Security `restricted` requires of a pod. The group reads the mounted Secrets. */}}
{{- define "cornserve.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* What Pod Security `restricted` requires of a container. */}}
{{- define "cornserve.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where the pods of a component run: (dict "root" $ "component" "…"). */}}
{{- define "cornserve.scheduling" -}}
{{- $values := index .root.Values .component -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- with omit $values.affinity "podAntiAffinity" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  podAntiAffinity:
    {{- with $values.affinity.podAntiAffinity }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "cornserve.selectorLabels" . | nindent 14 }}
    {{- end }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cornserve.selectorLabels" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end -}}

{{/* The arguments that set limits. */}}
{{- define "cornserve.limitArguments" -}}
{{- range $name, $value := .Values.limits }}
- --limit={{ $name }}={{ int64 $value }}
{{- end }}
{{- end -}}

{{/* Fails if the namespace contains another instance: a namespace is a tenant. */}}
{{- define "cornserve.checkSingleInstance" -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $other := index $labels "app.kubernetes.io/instance" -}}
{{- if and (eq (index $labels "app.kubernetes.io/name" | default "") "cornserve") (eq (index $labels "app.kubernetes.io/component" | default "") "controller") (ne $other $.Release.Name) -}}
{{- fail (printf "the namespace %s already contains the release %s of Cornserve: upgrade it, or install in another namespace" $.Release.Namespace $other) -}}
{{- end -}}
{{- end -}}
{{- end -}}
