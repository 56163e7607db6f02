//! A webhook that refuses: a real one, served over TLS by the test's process, which the API server calls.

use crate::cluster::Testbed;
use crate::error::{Doing, Result, refused};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Refuses while it lives; `lift` takes it away.
pub struct Refusal {
    name: String,
    client: Client,
    asked: Arc<AtomicUsize>,
    server: tokio::task::JoinHandle<()>,
}

impl Refusal {
    /// Refuses creations of `resource` (e.g. `pods`; group "", or "*" for whichever has it) in one namespace with this message. What an
    /// earlier one left that was killed is replaced.
    pub async fn start(
        testbed: &Testbed,
        client: &Client,
        namespace: &str,
        group: &str,
        resource: &str,
        message: &str,
    ) -> Result<Refusal> {
        let listener = TcpListener::bind((testbed.layout.host_ip(), 0))
            .await
            .doing("cannot listen for a webhook")?;
        let port = listener.local_addr().doing("cannot tell a port")?.port();
        let acceptor = acceptor(testbed)?;
        let asked = Arc::new(AtomicUsize::new(0));
        let server = tokio::spawn(serve(listener, acceptor, message.to_string(), asked.clone()));
        let authority = std::fs::read(testbed.layout.pki("ca.crt")).doing("cannot read the authority")?;
        let name = format!("refuse-{resource}-{namespace}");
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "refusal.testbed.local",
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 5,
                "clientConfig": {"url": format!("https://{}:{port}/", testbed.layout.host_ip()), "caBundle": data_encoding::BASE64.encode(&authority)},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]}],
            }],
        });
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        api.patch(&name, &PatchParams::apply("testbed"), &Patch::Apply(configuration))
            .await
            .doing("cannot install a webhook")?;
        Ok(Refusal {
            name,
            client: client.clone(),
            asked,
            server,
        })
    }

    /// How often the API server asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub async fn lift(self) -> Result<()> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        api.delete(&self.name, &Default::default())
            .await
            .doing("cannot remove a webhook")?;
        self.server.abort();
        Ok(())
    }
}

fn acceptor(testbed: &Testbed) -> Result<TlsAcceptor> {
    let bad = |e: &dyn std::fmt::Display| refused("the webhook's certificate")(e);
    let chain = CertificateDer::from_pem_file(testbed.layout.pki("webhook.crt")).map_err(|e| bad(&e))?;
    let key = PrivateKeyDer::from_pem_file(testbed.layout.pki("webhook.key")).map_err(|e| bad(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(&e))?;
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .map_err(|e| bad(&e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, message: String, asked: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, message, asked) = (acceptor.clone(), message.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|request| refuse(request, &message, &asked));
            // A broken connection is the API server's business: it asks again or refuses by itself.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn refuse(
    request: Request<Incoming>,
    message: &str,
    asked: &AtomicUsize,
) -> std::result::Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    asked.fetch_add(1, Ordering::SeqCst);
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": false, "status": {"code": 403, "message": message}},
    });
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}
