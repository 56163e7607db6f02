//! KWOK, which plays the kubelet for as many nodes as wanted. It leaves alone every node without its annotation.

use super::{Setting, argv};
use crate::error::{Doing, Result};
use crate::layout::write;
use crate::space::Program;
use std::path::Path;

/// Nodes with this annotation are KWOK's.
pub const ANNOTATION: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// Keeps pods that nobody meant for them off fake nodes.
pub const TAINT: &str = "kwok.x-k8s.io/node";

/// `stages` and `extra` become KWOK's configuration: how nodes and pods live, and where the logs of fake pods come from.
pub fn program(setting: &Setting, stages: &Path, extra: &str) -> Result<Program> {
    let stages = std::fs::read_to_string(stages).doing("cannot read KWOK's stages")?;
    let file = setting.file("control/kwok.yaml");
    write(&file, format!("{stages}\n---\n{extra}"))?;
    let flags = [
        ("config", file.to_string_lossy().into_owned()),
        ("kubeconfig", setting.pki("admin.kubeconfig")),
        ("manage-all-nodes", "false".into()),
        (
            "manage-nodes-with-annotation-selector",
            format!("{}={}", ANNOTATION.0, ANNOTATION.1),
        ),
        // The API server fetches logs of fake pods from here.
        ("node-ip", setting.layout.control_ip()),
        ("node-port", PORT.into()),
        ("server-address", format!("{}:{PORT}", setting.layout.control_ip())),
        ("tls-cert-file", setting.pki("kwok.crt")),
        ("tls-private-key-file", setting.pki("kwok.key")),
        ("cidr", setting.layout.fake_pods()),
        ("node-lease-duration-seconds", "40".into()),
    ];
    Ok(Program::new("kwok", argv(setting.bin("kwok"), &flags)))
}

const PORT: &str = "10247";
