//! kube-scheduler with its default profile.

use super::{Setting, argv};
use crate::space::Program;

pub fn program(setting: &Setting) -> Program {
    let flags = [
        ("kubeconfig", setting.pki("scheduler.kubeconfig")),
        ("leader-elect", "false".into()),
        ("kube-api-qps", "200".into()),
        ("kube-api-burst", "400".into()),
        ("profiling", "false".into()),
    ];
    Program::new("kube-scheduler", argv(setting.bin("kube-scheduler"), &flags))
}
