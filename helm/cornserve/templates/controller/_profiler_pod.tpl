{{/* The pods that measure the options of apps. The controller adds the volumes `job` and `results`. */}}
{{- define "cornserve.profilerPod" -}}
metadata:
  labels:
    {{- include "cornserve.selectorLabels" (dict "root" . "component" "profiler") | nindent 4 }}
    app.kubernetes.io/part-of: cornserve
spec:
  restartPolicy: Never
  # The pod needs no access to the Kubernetes API.
  serviceAccountName: {{ include "cornserve.fullname" . }}-executor
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.images.pullSecrets }}
  imagePullSecrets:
    {{- include "cornserve.pullSecrets" . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "cornserve.podSecurityContext" . | nindent 4 }}
  {{- with .Values.controller.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  nodeSelector: {{ toJson .Values.controller.nodeSelector }}
  tolerations: {{ toJson .Values.controller.tolerations }}
  terminationGracePeriodSeconds: 30
  containers:
    - name: profiler
      image: {{ include "cornserve.image" (dict "root" . "image" .Values.images.control) }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      command: [python, -m, cornserve.profiler.worker]
      args: [--job=/run/cornserve/job/job.json, --results=/run/cornserve/results]
      env:
        - {name: HOME, value: /tmp}
        # It deploys temporary apps.
        - name: CORNSERVE_ADMIN_TOKEN
          valueFrom:
            secretKeyRef: {name: {{ include "cornserve.accessSecretName" . }}, key: admin-token}
      resources:
        {{- toYaml .Values.controller.resources | nindent 8 }}
      securityContext:
        {{- include "cornserve.containerSecurityContext" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: job, mountPath: /run/cornserve/job, readOnly: true}
        - {name: results, mountPath: /run/cornserve/results, readOnly: true}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 1Gi}
{{- end -}}
