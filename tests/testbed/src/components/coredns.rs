//! Cluster DNS, beside the API server. It answers for the cluster's names and refuses every other, so no look-up leaves the machine.

use super::Setting;
use crate::error::Result;
use crate::layout::write;
use crate::space::Program;

pub fn program(setting: &Setting) -> Result<Program> {
    let file = setting.file("control/Corefile");
    let (ip, kubeconfig) = (setting.layout.control_ip(), setting.pki("admin.kubeconfig"));
    let text = format!(
        ".:53 {{\n  bind {ip}\n  errors\n  ready {ip}:8181\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {kubeconfig}\n    pods insecure\n    ttl 1\n  }}\n}}\n"
    );
    write(&file, text)?;
    let argv = vec![
        setting.bin("coredns"),
        "-conf".into(),
        file.to_string_lossy().into_owned(),
    ];
    Ok(Program::new("coredns", argv))
}
