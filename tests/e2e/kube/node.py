"""One node: containerd, kubelet and kube-proxy in a network namespace, with separate control groups and folders.

Starts a node of a run, which registers itself, and kills it with all its containers, like a machine that loses power.
Invariant: two nodes share no file, socket, control group or address.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from kube import cgroups, leftovers, network
from kube.host import Process, succeeds, until
from kube.host import run as call
from kube.state import Run

PAUSE_IMAGE: Final = "localhost/pause:1"
DAEMONS: Final = ("kubelet", "kube-proxy", "containerd")
_SOCKET_SECONDS: Final = 60.0


def name_of(number: int) -> str:
    """The name of a node in Kubernetes. The network namespace has the same name after the tag."""
    return f"node{number}"


def group_of(run: Run, number: int) -> str:
    """The name of a node's control groups."""
    return f"{run.tag}-{name_of(number)}"


def containerd_settings(run: Run, number: int) -> str:
    """containerd's configuration, in a form that versions 1.6 to 2 read.

    Where the machine forbids a process to lower its OOM score, runc would fail when it tries. The network namespaces of
    sandboxes are mounted below the node's folder, and runc keeps its state there, so that both are removed with the
    folder.
    """
    folder = run.node(number)
    return f"""version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{folder}/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


def pod_network(run: Run, number: int) -> str:
    """The plugin list of the bridge network. Pods keep their addresses on the way to other nodes: there are routes."""
    ranges = [[{"subnet": run.plan.pods(number)}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{run.node(number)}/addresses",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": f"{run.tag}-pods", "plugins": [bridge, ports]}, indent=1)


def kubelet_settings(run: Run, number: int) -> str:
    """The kubelet's configuration as JSON, which is also YAML."""
    folder = run.node(number)
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{run.pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{group_of(run, number)}",
            "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
            "clusterDNS": [run.plan.dns_service()],
            "clusterDomain": "cluster.local",
            "failSwapOn": False,
            "nodeStatusUpdateFrequency": "5s",
            # How often changed Secrets reach running pods.
            "syncFrequency": "10s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi"},
            "resolvConf": f"{folder}/resolv.conf",
            "podLogsDir": f"{folder}/pod-logs",
            "volumePluginDir": f"{folder}/volume-plugins",
            "serializeImagePulls": False,
        },
        indent=1,
    )


def prepare(run: Run, number: int) -> None:
    """Write a node's files and create its control groups."""
    folder = run.node(number)
    (folder / "cni").mkdir(parents=True)
    cgroups.make_groups(group_of(run, number))
    (folder / "containerd.toml").write_text(containerd_settings(run, number), encoding="utf-8")
    (folder / "cni" / "10-pods.conflist").write_text(pod_network(run, number), encoding="utf-8")
    (folder / "kubelet.yaml").write_text(kubelet_settings(run, number), encoding="utf-8")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n", encoding="utf-8")


def start(run: Run, binaries: Path, number: int) -> None:
    """Start a node's daemons, except those that run already. Does not wait until the node is Ready."""
    folder, name = run.node(number), name_of(number)
    if all(run.process(f"{daemon}-{name}") for daemon in DAEMONS):
        return
    network.plug(run.tag, name, up=True)
    if run.process(f"containerd-{name}") is None:
        run.start(f"containerd-{name}", name, "containerd", "-c", folder / "containerd.toml")
    until(
        lambda: succeeds([*_ctr(run, number), "version"]),
        what=f"containerd of {name} (see {run.log(f'containerd-{name}')})",
        seconds=_SOCKET_SECONDS,
    )
    load(run, number, run.folder / "pause.tar")
    if run.process(f"kubelet-{name}") is None:
        run.start(
            f"kubelet-{name}",
            name,
            binaries / "kubelet",
            f"--kubeconfig={run.pki / f'{name}.conf'}",
            f"--config={folder / 'kubelet.yaml'}",
            f"--hostname-override={name}",
            f"--node-ip={run.plan.node(number)}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-certificates'}",
            f"--node-labels=topology.kubernetes.io/zone=zone-{number}",
            f"--containerd={folder / 'containerd.sock'}",  # for cAdvisor, which otherwise asks another one or none
        )
    if run.process(f"kube-proxy-{name}") is None:
        run.start(
            f"kube-proxy-{name}",
            name,
            binaries / "kube-proxy",
            f"--kubeconfig={run.pki / 'proxy.conf'}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={run.plan.all_pods()}",
            f"--hostname-override={name}",
            "--conntrack-max-per-core=0",
        )


def kill(run: Run, number: int) -> None:
    """Kill a node: first disconnect it, so that it cannot report its end, then kill every process on it.

    The memory of the node is lost; its disk stays. Does nothing to a node that is down.
    """
    name, folder = name_of(number), run.node(number)
    network.plug(run.tag, name, up=False)

    def found() -> list[Process]:
        daemons = [run.process(f"{daemon}-{name}") for daemon in DAEMONS]
        containers = leftovers.in_groups(group_of(run, number))
        return [*(process for process in daemons if process), *leftovers.shims(folder), *containers]

    leftovers.end_processes(found)
    sockets = leftovers.shim_sockets(folder)
    leftovers.unmount(folder)
    for socket in sockets:
        socket.unlink(missing_ok=True)
    for memory in (folder / "containerd" / "state", folder / "runc", folder / "addresses"):
        shutil.rmtree(memory, ignore_errors=True)


def load(run: Run, number: int, archive: Path) -> None:
    """Import a docker-archive or OCI archive into a node's containerd."""
    call([*_ctr(run, number), "-n", "k8s.io", "images", "import", archive])


def tag(run: Run, number: int, reference: str, other: str) -> None:
    """Give an image on a node another name. Both names are as pods write them: `prefix/name:version`."""
    names = [f"docker.io/{name}" for name in (reference, other)]
    call([*_ctr(run, number), "-n", "k8s.io", "images", "tag", "--force", *names])


def _ctr(run: Run, number: int) -> tuple[str, ...]:
    return ("ctr", "-a", f"{run.node(number)}/containerd.sock")
