{{- define "gradproxy.labels" -}}
app.kubernetes.io/name: gradproxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The proxy. As an init container that restarts it is up before the job's containers start, and ends after them. After the start its capabilities lie in
processes that parse no bytes of the job's (gradproxy-warden, gradproxy-prober). */}}
{{- define "gradproxy.sidecar" -}}
name: gradproxy
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run, -c, /etc/gradproxy/gradproxy.yaml]
restartPolicy: Always
ports:
  - {name: tunnel, containerPort: {{ .Values.tunnel.port }}}
startupProbe: {exec: {command: [/gradproxy, status]}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {exec: {command: [/gradproxy, status]}, periodSeconds: 30, timeoutSeconds: 5}
securityContext:
  runAsUser: 0
  runAsNonRoot: false
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
    add: [NET_ADMIN{{ if .Values.probes }}, BPF, PERFMON, SYS_PTRACE{{ end }}]
resources: {{ toJson .Values.resources }}
volumeMounts:
  - {name: gradproxy, mountPath: /etc/gradproxy, readOnly: true}
  - {name: gradproxy-run, mountPath: /run}
  - {name: gradproxy-state, mountPath: /var/lib}
{{- end }}

{{/* The job's pod spec, with the proxy first among its init containers. */}}
{{- define "gradproxy.pod" -}}
{{- $pod := deepCopy .Values.pod -}}
{{- if not $pod.containers }}{{ fail "pod.containers is missing: put the job's whole pod spec under pod" }}{{ end -}}
{{- if $pod.hostNetwork }}{{ fail "pod.hostNetwork: the rules would be the node's: install the package on the node instead" }}{{ end -}}
{{- $sidecar := include "gradproxy.sidecar" . | fromYaml -}}
{{- $_ := set $pod "initContainers" (concat (list $sidecar) ($pod.initContainers | default list)) -}}
{{- $volumes := list (dict "name" "gradproxy" "secret" (dict "secretName" .Values.secret "defaultMode" 0400)) (dict "name" "gradproxy-run" "emptyDir" (dict "medium" "Memory")) (dict "name" "gradproxy-state" "emptyDir" (dict)) -}}
{{- $_ := set $pod "volumes" (concat ($pod.volumes | default list) $volumes) -}}
{{- if .Values.probes }}{{ $_ := set $pod "shareProcessNamespace" true }}{{ end -}}
{{- if eq .Values.kind "Job" }}{{ $_ := set $pod "restartPolicy" ($pod.restartPolicy | default "Never") }}{{ end -}}
{{- toYaml $pod -}}
{{- end }}
