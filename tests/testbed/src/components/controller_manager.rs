//! kube-controller-manager, with upstream's own times: what tests learn about lost nodes must hold elsewhere.

use super::{Setting, argv};
use crate::space::Program;

pub fn program(setting: &Setting) -> Program {
    let flags = [
        ("kubeconfig", setting.pki("controller-manager.kubeconfig")),
        ("service-account-private-key-file", setting.pki("tokens.key")),
        ("root-ca-file", setting.pki("ca.crt")),
        ("cluster-signing-cert-file", setting.pki("ca.crt")),
        ("cluster-signing-key-file", setting.pki("ca.key")),
        ("use-service-account-credentials", "true".into()),
        // Alone, so it need not wait for a lease that a killed one still holds.
        ("leader-elect", "false".into()),
        ("kube-api-qps", "200".into()),
        ("kube-api-burst", "400".into()),
        ("profiling", "false".into()),
    ];
    Program::new(
        "kube-controller-manager",
        argv(setting.bin("kube-controller-manager"), &flags),
    )
}
