//! The loop that takes connections. What axum's own does, with bounds on how long a client may take to say what it
//! wants: connections that say nothing would otherwise stay for ever, each with a file of ours.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// For the head of a request, and for which a connection may idle between two.
const HEAD: Duration = Duration::from_secs(60);
/// Before connections are taken again when the process has no file left for one.
const BREATH: Duration = Duration::from_millis(500);

/// Serves until told to stop, and then until the requests that had begun are answered.
pub async fn serve(listener: TcpListener, app: Router, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        // A live line is small and must not wait for the next one.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended at once");
            continue;
        }
        let connection = http.serve_connection(TokioIo::new(stream), service_fn(answer(app.clone(), address)));
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

fn answer(
    app: Router,
    address: SocketAddr,
) -> impl Fn(Request<Incoming>) -> tower::util::Oneshot<Router, Request<Body>> {
    move |request| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(address));
        app.clone().oneshot(request)
    }
}
