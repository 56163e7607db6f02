//! An instance's certificates: one authority for everything, since nobody outside of the machine ever meets it.

use crate::error::{Error, Result, refused};
use crate::layout::{Layout, NODES, write};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Who may sign in, as (file, common name, organization). Kubernetes takes the user from the first name and groups from the second.
const CLIENTS: [(&str, &str, &str); 6] = [
    ("admin", "testbed-admin", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    ("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
    ("front-proxy", "front-proxy", ""),
];

/// Makes all keys, certificates and kubeconfigs of an instance.
pub fn make(layout: Layout) -> Result<()> {
    let bad = |e: rcgen::Error| refused("cannot make certificates")(&e);
    let mut params = named("testbed-authority", "")?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(bad)?;
    let authority = params.self_signed(&key).map_err(bad)?;
    write(&layout.pki("ca.crt"), authority.pem())?;
    write(&layout.pki("ca.key"), key.serialize_pem())?;
    let issuer = Issuer::new(params, key);

    let mut names: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ]
    .map(String::from)
    .to_vec();
    names.extend([layout.control_ip(), layout.api_ip(), layout.kubernetes_service()]);
    issue(layout, &issuer, "apiserver", "kube-apiserver", "", names)?;
    issue(layout, &issuer, "kwok", "kwok", "", vec![layout.control_ip()])?;
    issue(
        layout,
        &issuer,
        "webhook",
        "webhook",
        "",
        vec![layout.host_ip(), "127.0.0.1".into()],
    )?;
    for (file, name, organization) in CLIENTS {
        issue(layout, &issuer, file, name, organization, vec![])?;
    }
    for (index, node) in NODES.iter().enumerate() {
        let names = vec![node.to_string(), layout.node_ip(index + 1)];
        issue(
            layout,
            &issuer,
            node,
            &format!("system:node:{node}"),
            "system:nodes",
            names,
        )?;
    }

    let tokens = KeyPair::generate().map_err(bad)?;
    write(&layout.pki("tokens.key"), tokens.serialize_pem())?;
    write(&layout.pki("tokens.pub"), tokens.public_key_pem())?;

    write(&layout.kubeconfig(), kubeconfig(layout, "admin", &layout.api_url())?)?;
    for user in ["admin", "controller-manager", "scheduler", "kube-proxy"]
        .iter()
        .chain(&NODES)
    {
        write(
            &layout.pki(&format!("{user}.kubeconfig")),
            kubeconfig(layout, user, &layout.inner_api_url())?,
        )?;
    }
    Ok(())
}

fn named(name: &str, organization: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(vec![]).map_err(|e| refused("cannot name a certificate")(&e))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if !organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    Ok(params)
}

fn issue(
    layout: Layout,
    issuer: &Issuer<'_, KeyPair>,
    file: &str,
    name: &str,
    organization: &str,
    hosts: Vec<String>,
) -> Result<()> {
    let bad = |e: rcgen::Error| refused("cannot issue a certificate")(&e);
    let mut params = CertificateParams::new(hosts).map_err(bad)?;
    params.distinguished_name = named(name, organization)?.distinguished_name;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(bad)?;
    let certificate = params.signed_by(&key, issuer).map_err(bad)?;
    write(&layout.pki(&format!("{file}.crt")), certificate.pem())?;
    write(&layout.pki(&format!("{file}.key")), key.serialize_pem())
}

/// A kubeconfig with everything inside, so that it can be copied anywhere. JSON is YAML too.
pub fn kubeconfig(layout: Layout, user: &str, server: &str) -> Result<String> {
    let data = |file: String| -> Result<String> {
        let content =
            std::fs::read(layout.pki(&file)).map_err(|e| Error::Refused(format!("cannot read {file}: {e}")))?;
        Ok(data_encoding::BASE64.encode(&content))
    };
    let user = serde_json::json!({
        "client-certificate-data": data(format!("{user}.crt"))?,
        "client-key-data": data(format!("{user}.key"))?,
    });
    kubeconfig_for(layout, server, user)
}

/// The same for somebody who signs in with a token.
pub fn kubeconfig_with_token(layout: Layout, server: &str, token: &str) -> Result<String> {
    kubeconfig_for(layout, server, serde_json::json!({ "token": token }))
}

fn kubeconfig_for(layout: Layout, server: &str, user: serde_json::Value) -> Result<String> {
    let authority =
        std::fs::read(layout.pki("ca.crt")).map_err(|e| Error::Refused(format!("cannot read ca.crt: {e}")))?;
    let name = layout.name();
    let document = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": data_encoding::BASE64.encode(&authority)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    serde_json::to_string_pretty(&document).map_err(|e| Error::Refused(e.to_string()))
}
