{{/* The name of the release's objects. */}}
{{- define "odradek.fullname" -}}
{{- default (printf "%s-operator" .Release.Name) .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of objects that belong to no namespace: two releases of one name may live in different ones. */}}
{{- define "odradek.clusterName" -}}
{{- printf "%s-%s" (include "odradek.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "odradek.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "odradek.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "odradek.image" -}}
{{- default (printf "%s/operator:%s" .Values.image.prefix (default .Chart.AppVersion .Values.image.version)) .Values.image.operator -}}
{{- end -}}

{{/* What the operator's pods are found by; never changes in the life of a Deployment. */}}
{{- define "odradek.selector" -}}
app.kubernetes.io/name: odradek
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "odradek.labels" -}}
{{ include "odradek.selector" . }}
{{ include "odradek.releaseLabels" . }}
{{- end -}}

{{- define "odradek.releaseLabels" -}}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.version | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The first lines of an object of the release's namespace. Called with (list context name). */}}
{{- define "odradek.metadata" -}}
name: {{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "odradek.labels" (index . 0) | nindent 2 }}
{{- end -}}

{{/* The same for an object that belongs to no namespace. */}}
{{- define "odradek.clusterMetadata" -}}
name: {{ index . 1 }}
labels:
  {{- include "odradek.labels" (index . 0) | nindent 2 }}
{{- end -}}

{{/*
What the operator does within a namespace. Objects are applied server-side, which takes create and patch. It reads no
Secrets and runs nothing in pods.
*/}}
{{- define "odradek.rules" -}}
# The resources themselves: finalizers and the mark of a paused one, their statuses, and owner references to them.
- apiGroups: [odradek.dev]
  resources: [clusters, topics]
  verbs: [get, list, watch, patch, update]
- apiGroups: [odradek.dev]
  resources: [clusters/status, topics/status]
  verbs: [get, patch, update]
- apiGroups: [odradek.dev]
  resources: [clusters/finalizers, topics/finalizers]
  verbs: [update]
# What a cluster consists of.
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, update, delete]
# Rolling restarts and lost nodes delete pods; a claim is grown, or given up with its node. Both are made by others.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, update, delete]
- apiGroups: [""]
  resources: [endpoints]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
# Broker pods get a role of their own: reading Services and Pods of their namespace. Kubernetes lets nobody give more
# than he has, and there is no `escalate` here.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Why a StatefulSet cannot create its pods, such as a quota, stands in Events only.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
# The Lease of the namespace: whoever holds it serves the namespace. An operator of all namespaces also holds one in the
# namespace default. Other Leases cannot be touched.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [odradek-operator, odradek-operator-all-namespaces]
  verbs: [get, update]
{{- if .Values.rbac.monitoring }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors, prometheusrules]
  verbs: [get, list, watch, create, patch, update, delete]
{{- end }}
{{- end -}}

{{/*
Not empty where this release brings the ClusterRole odradek-node-reader: there is none yet, or it is this release's. One
that an earlier or another release has left, or that was applied without Helm, stays as it is: Helm refuses to take over
what another release made.
*/}}
{{- define "odradek.ownsNodeReader" -}}
{{- $found := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "odradek-node-reader" -}}
{{- $notes := dig "metadata" "annotations" dict ($found | default dict) -}}
{{- $owner := printf "%s/%s" (get $notes "meta.helm.sh/release-namespace") (get $notes "meta.helm.sh/release-name") -}}
{{- if or (not $found) (eq $owner (printf "%s/%s" .Release.Namespace .Release.Name)) -}}
yes
{{- end -}}
{{- end -}}

{{/*
Fails while a resource definition is being deleted: Helm would update it, and it would still be gone soon after, together
with every resource. The definition waits for resources with finalizers.
*/}}
{{- define "odradek.refuseLeaving" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" . -}}
{{- if dig "metadata" "deletionTimestamp" "" ($found | default dict) -}}
{{- printf "CustomResourceDefinition %s is being deleted. Installed now, it would be gone again soon. It waits for resources with finalizers: list them with `kubectl get %s --all-namespaces`. To delete them without their topics, see section 11 of docs/kubernetes.md. Install again when `kubectl get crd %s` finds nothing." . . . | fail -}}
{{- end -}}
{{- end -}}
