{{/* The name of the release's objects. */}}
{{- define "odradek.fullname" -}}
{{- default (printf "%s-operator" .Release.Name) .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of cluster-scoped objects. It contains the namespace, because two releases may have the same name. */}}
{{- define "odradek.clusterName" -}}
{{- printf "%s-%s" (include "odradek.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "odradek.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "odradek.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required if serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "odradek.image" -}}
{{- default (printf "%s/operator:%s" .Values.image.prefix (default .Chart.AppVersion .Values.image.version)) .Values.image.operator -}}
{{- end -}}

{{/* The labels that select the operator's pods. They must never change: the selector of a Deployment is immutable. */}}
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

{{/* The metadata of an object in the release's namespace. The argument is (list context name). */}}
{{- define "odradek.metadata" -}}
name: {{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "odradek.labels" (index . 0) | nindent 2 }}
{{- end -}}

{{/* The metadata of a cluster-scoped object. The argument is (list context name). */}}
{{- define "odradek.clusterMetadata" -}}
name: {{ index . 1 }}
labels:
  {{- include "odradek.labels" (index . 0) | nindent 2 }}
{{- end -}}

{{/* The labels that select the pod of the console. They must never change. */}}
{{- define "odradek.consoleSelector" -}}
app.kubernetes.io/name: odradek
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: console
{{- end -}}

{{/* The metadata of an object of the console. The argument is (list context name). */}}
{{- define "odradek.consoleMetadata" -}}
name: {{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "odradek.consoleSelector" (index . 0) | nindent 2 }}
  {{- include "odradek.releaseLabels" (index . 0) | nindent 2 }}
{{- end -}}

{{/*
The rules of the operator's role in a namespace. Server-side apply needs create and patch. The operator does not read
Secrets and does not execute commands in pods.
*/}}
{{- define "odradek.rules" -}}
# Finalizers and annotations of the resources, their statuses, and owner references to them.
- apiGroups: [odradek.dev]
  resources: [clusters, topics, users, pipelines, mirrors]
  verbs: [get, list, watch, patch, update]
- apiGroups: [odradek.dev]
  resources: [clusters/status, topics/status, users/status, pipelines/status, mirrors/status]
  verbs: [get, patch, update]
- apiGroups: [odradek.dev]
  resources: [clusters/finalizers, topics/finalizers, users/finalizers, pipelines/finalizers, mirrors/finalizers]
  verbs: [update]
# The objects of clusters and mirrors.
- apiGroups: [apps]
  resources: [statefulsets, deployments]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, update, delete]
# Certificates and keys of clusters and users. Kubernetes cannot limit this to names that do not exist yet.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, update]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, update, delete]
# The operator deletes pods to restart them or after the loss of a node. It creates the drivers of Pipelines, and gives
# them these permissions for their executors. The permissions to list and to delete pods allow the same as
# deletecollection.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
# It resizes claims, and deletes those of a lost node. StatefulSets create them.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, update, delete]
- apiGroups: [""]
  resources: [endpoints]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
# The operator creates a role for each cluster, with which broker pods read their Services, and for each Pipeline, with
# which its driver creates executors. Without the verb `escalate`, it cannot grant rights that it does not have.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Only Events contain the reason why a StatefulSet cannot create its pods, such as a quota.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
# The operator that holds the Lease of a namespace serves the namespace. An operator that serves all namespaces also
# holds a Lease in the namespace default. The operator cannot access other existing Leases.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [odradek-operator, odradek-operator-all-namespaces]
  verbs: [get, update]
# The Certificates of authorities with an issuerRef. cert-manager makes their Secrets.
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, watch, create, patch, update, delete]
{{- if .Values.rbac.monitoring }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors, prometheusrules]
  verbs: [get, list, watch, create, patch, update, delete]
{{- end }}
{{- end -}}

{{/*
Not empty if this release installs the ClusterRole odradek-node-reader: it does not exist yet, or belongs to this
release. If another release or a manifest created it, this release does not change it: Helm refuses to install an object
that it does not own.
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
Fails while a resource definition is being deleted. Helm would update it, but Kubernetes would still delete it, with all
resources, as soon as no resource with a finalizer is left.
*/}}
{{- define "odradek.refuseLeaving" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" . -}}
{{- if dig "metadata" "deletionTimestamp" "" ($found | default dict) -}}
{{- printf "CustomResourceDefinition %s is being deleted, and would disappear even if this release updated it. Its deletion waits for resources with finalizers: list them with `kubectl get %s --all-namespaces`. To delete them without their topics, see section 11 of docs/kubernetes.md. Install again when `kubectl get crd %s` finds nothing." . . . | fail -}}
{{- end -}}
{{- end -}}
