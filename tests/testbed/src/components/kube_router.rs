//! kube-router as a firewall only: it enforces network policies. Routes and Services are done by others.

use super::{Setting, argv};
use crate::space::Program;

pub fn program(setting: &Setting, node: &str) -> Program {
    let flags = [
        ("run-firewall", "true".into()),
        ("run-router", "false".into()),
        ("run-service-proxy", "false".into()),
        ("kubeconfig", setting.pki("admin.kubeconfig")),
        ("hostname-override", node.into()),
        ("service-cluster-ip-range", setting.layout.services()),
        // Policies take effect when they change; this is for what was missed, and every look costs.
        ("iptables-sync-period", "60s".into()),
        ("v", "1".into()),
    ];
    let mut program = Program::new("kube-router", argv(setting.bin("kube-router"), &flags));
    program.env.push(("NODE_NAME".into(), node.into()));
    program
}
