{{- define "aegish.name" -}}
{{- $name := default (ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name)) .Values.nameOverride -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "aegish.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "aegish.labels" -}}
{{ include "aegish.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{/* Head of an object: call with (list $ "component"). */}}
{{- define "aegish.metadata" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
name: {{ include "aegish.name" $root }}-{{ $component }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "aegish.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ $component }}
{{- end -}}

{{- define "aegish.matches" -}}
{{- $root := index . 0 -}}
matchLabels:
  {{- include "aegish.selector" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "aegish.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* Head of a pod's template: labels, and a sum that changes with the catalog. */}}
{{- define "aegish.podMetadata" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}{{- $scraped := index . 2 -}}
labels:
  {{- include "aegish.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ $component }}
  {{- with $root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/catalog: {{ include "aegish.catalog" $root | sha256sum }}
  {{- if and $scraped (not $root.Values.metrics.podMonitor.enabled) }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ $root.Values.metrics.port | quote }}
  prometheus.io/path: /metrics
  {{- end }}
  {{- with $root.Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}

{{/*
What all pods share. Links to services are off: Kubernetes would describe the service
"aegish-dist-..." by variables AEGISH_DIST_..., of which the product refuses those it does not know.
*/}}
{{- define "aegish.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ include "aegish.name" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "aegish.hardened" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "aegish.container" -}}
image: {{ include "aegish.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "aegish.hardened" . }}
{{- end -}}

{{- define "aegish.secret" -}}
valueFrom: {secretKeyRef: {name: {{ index . 0 | quote }}, key: {{ index . 1 | quote }}}}
{{- end -}}

{{- define "aegish.plainEnv" -}}
- {name: AEGISH_DIST_HOME, value: /var/lib/aegish-dist}
- {name: XDG_CACHE_HOME, value: /tmp/cache}
- {name: AEGISH_DIST_LOG_FORMAT, value: json}
- {name: AEGISH_DIST_LOG_LEVEL, value: {{ .Values.logLevel }}}
{{- range $name, $value := .Values.extraEnv }}
- {name: {{ $name | quote }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* Call with (list $ "key"), the key of the database's URL: of commands or of workers. */}}
{{- define "aegish.storesEnv" -}}
{{- $key := index . 1 -}}{{- with index . 0 -}}
- name: AEGISH_DIST_DATABASE_URL
  {{ include "aegish.secret" (list .Values.stores.secret $key) }}
- name: AEGISH_DIST_BROKER_URL
  {{ include "aegish.secret" (list .Values.stores.secret .Values.stores.brokerKey) }}
{{- if .Values.stores.limiterKey }}
- name: AEGISH_DIST_LIMITER_URL
  {{ include "aegish.secret" (list .Values.stores.secret .Values.stores.limiterKey) }}
{{- end }}
{{ include "aegish.plainEnv" . }}
{{- end -}}
{{- end -}}

{{/* Of what calls models: keys and the catalog that says where they may go. Called likewise. */}}
{{- define "aegish.callerEnv" -}}
{{ include "aegish.storesEnv" . }}
{{- with index . 0 }}
{{- if include "aegish.catalog" . }}
- {name: AEGISH_DIST_CATALOG, value: /etc/aegish-dist/catalog.toml}
{{- end }}
{{- $secret := .Values.keys.secret }}
{{- range .Values.keys.variables }}
- name: {{ . | quote }}
  valueFrom: {secretKeyRef: {name: {{ $secret | quote }}, key: {{ . | quote }}, optional: true}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "aegish.catalog" -}}
{{- if .Values.catalog -}}
{{ .Values.catalog }}
{{- else if .Values.simulator.enabled -}}
{{ .Files.Get "files/simulated.toml" | replace "http://simulator:8400" (printf "http://%s-simulator:8400" (include "aegish.name" .)) }}
{{- end -}}
{{- end -}}

{{- define "aegish.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/aegish-dist}
{{- end -}}

{{- define "aegish.callerMounts" -}}
{{ include "aegish.mounts" . }}
{{- if include "aegish.catalog" . }}
- {name: catalog, mountPath: /etc/aegish-dist, readOnly: true}
{{- end }}
{{- end -}}

{{- define "aegish.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
- {name: home, emptyDir: {sizeLimit: 1Gi}}
{{- end -}}

{{- define "aegish.callerVolumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 256Mi}}
{{- if .Values.worker.spoolClaim }}
- {name: home, persistentVolumeClaim: {claimName: {{ .Values.worker.spoolClaim | quote }}}}
{{- else }}
- {name: home, emptyDir: {sizeLimit: 1Gi}}
{{- end }}
{{- if include "aegish.catalog" . }}
- {name: catalog, configMap: {name: {{ include "aegish.name" . }}-catalog}}
{{- end }}
{{- end -}}

{{/* Live: the process and its loop. Ready: it can do its work. */}}
{{- define "aegish.probes" -}}
ports:
  - {name: metrics, containerPort: {{ .Values.metrics.port }}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 10
{{- end -}}

{{/* Seconds that a worker gives calls in flight, and those after which it is killed. */}}
{{- define "aegish.graceSeconds" -}}{{ add .Values.worker.longestCallSeconds 10 }}{{- end -}}
{{- define "aegish.killSeconds" -}}{{ add .Values.worker.longestCallSeconds 40 }}{{- end -}}

{{- define "aegish.dns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{- define "aegish.ports" -}}
{{- range $place, $port := . }}{{ if $place }}{{ "\n" }}{{ end }}- {port: {{ $port }}, protocol: TCP}{{ end }}
{{- end -}}
