{{/* The settings of executors, which the controller reads. */}}
{{- define "cornserve.clusterSettings" -}}
{{- $executors := .Values.executors -}}
instance: {{ .Release.Name| quote }}
url: {{ include "cornserve.url" . }}
controllerName: {{ include "cornserve.fullname" . }}-controller
version: {{ .Chart.AppVersion | quote }}
{{- range $device := list "cpu" "gpu" }}
{{- $settings := index $executors $device }}
{{ $device }}:
  image: {{ include "cornserve.image" (dict "root" $ "image" (index $.Values.images.executors $device)) }}
  {{- toYaml $settings | nindent 2 }}
{{- end }}
usesGpus: {{ eq $executors.device "gpu" }}
gpuResource: {{ $executors.gpuResource| quote }}
gpuTypes: {{ toJson $executors.gpuTypes }}
imagePullPolicy: {{ .Values.images.pullPolicy }}
imagePullSecrets: {{ toJson .Values.images.pullSecrets }}
secretName: {{ include "cornserve.instanceSecretName" .| quote }}
{{- with include "cornserve.tlsSecretName" . }}
tlsSecretName: {{ .| quote }}
{{- end }}
serviceAccountName: {{ include "cornserve.fullname" . }}-executor
sharedMemory:
  type: {{ $executors.sharedMemory.type }}
  {{- if eq $executors.sharedMemory.type "persistentVolumeClaim" }}
  claimName: {{ include "cornserve.sharedMemoryClaimName" .| quote }}
  {{- else if eq $executors.sharedMemory.type "hostPath" }}
  path: {{ include "cornserve.sharedMemoryPath" .| quote }}
  {{- end }}
privateSharedMemory: {{ $executors.privateSharedMemory| quote }}
topologyKey: {{ $executors.topologyKey| quote }}
cellPlacement: {{ $executors.cellPlacement }}
cellPatienceSeconds: {{ $executors.cellPatienceSeconds }}
{{- with $executors.priorityClassName }}
priorityClassName: {{ .| quote }}
{{- end }}
{{- with $executors.schedulerName }}
schedulerName: {{ .| quote }}
{{- end }}
podLabels: {{ toJson $executors.podLabels }}
{{- $annotations := $executors.podAnnotations -}}
{{- with .Values.instanceSecret.value -}}
{{- /* Another secret restarts executors together with gateways. */ -}}
{{- $annotations = merge (dict "checksum/instance-secret" (sha256sum .)) $annotations -}}
{{- end }}
podAnnotations: {{ toJson $annotations }}
peerNetworks: {{ toJson $executors.peerNetworks }}
transport: {{ $executors.transport }}
startSeconds: {{ int64 $executors.startSeconds }}
drainSeconds: {{ int64 $executors.drainSeconds }}
profilerPod:
  {{- include "cornserve.profilerPod" . | nindent 2 }}
limits:
{{- range $name, $value := .Values.limits }}
  - {{ $name }}={{ int64 $value }}
{{- else }} []
{{- end }}
{{- end -}}

{{- define "cornserve.sharedMemoryClaimName" -}}
{{- .Values.executors.sharedMemory.existingClaim | default (printf "%s-shared-memory" (include "cornserve.fullname" .)) -}}
{{- end -}}

{{- define "cornserve.sharedMemoryPath" -}}
{{- .Values.executors.sharedMemory.path | default (printf "/dev/shm/cornserve-%s" .Release.Namespace) -}}
{{- end -}}
