//! kube-apiserver, with an audit log in which tests count requests.

use super::{Setting, argv};
use crate::error::Result;
use crate::layout::write;
use crate::space::Program;

/// Every request once, when it is answered. Bodies would be gigabytes under load.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
";

pub fn program(setting: &Setting) -> Result<Program> {
    let layout = setting.layout;
    let policy = setting.file("control/audit-policy.yaml");
    write(&policy, AUDIT_POLICY)?;
    let flags = [
        ("etcd-servers", super::etcd::URL.into()),
        ("bind-address", "0.0.0.0".into()),
        ("secure-port", "6443".into()),
        // Pods reach it through the `kubernetes` Service, which the API server points here by itself.
        ("advertise-address", layout.control_ip()),
        ("service-cluster-ip-range", layout.services()),
        ("tls-cert-file", setting.pki("apiserver.crt")),
        ("tls-private-key-file", setting.pki("apiserver.key")),
        ("client-ca-file", setting.pki("ca.crt")),
        ("kubelet-client-certificate", setting.pki("kubelet-client.crt")),
        ("kubelet-client-key", setting.pki("kubelet-client.key")),
        // Nothing resolves the nodes' names.
        ("kubelet-preferred-address-types", "InternalIP".into()),
        ("service-account-issuer", ISSUER.into()),
        ("service-account-key-file", setting.pki("tokens.pub")),
        ("service-account-signing-key-file", setting.pki("tokens.key")),
        ("requestheader-client-ca-file", setting.pki("ca.crt")),
        ("requestheader-allowed-names", "front-proxy".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("proxy-client-cert-file", setting.pki("front-proxy.crt")),
        ("proxy-client-key-file", setting.pki("front-proxy.key")),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("allow-privileged", "true".into()),
        ("audit-policy-file", policy.to_string_lossy().into_owned()),
        ("audit-log-path", layout.audit_log().to_string_lossy().into_owned()),
        // One file: a rotated one would hide requests from whoever counts.
        ("audit-log-maxsize", "4000".into()),
        ("max-requests-inflight", "1200".into()),
        ("max-mutating-requests-inflight", "600".into()),
        ("profiling", "false".into()),
    ];
    Ok(Program::new(
        "kube-apiserver",
        argv(setting.bin("kube-apiserver"), &flags),
    ))
}

pub const ISSUER: &str = "https://kubernetes.default.svc";
