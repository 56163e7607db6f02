//! The way from a server to its Postgres, which a test can cut: what was asked goes on to Postgres, and the answer does
//! not come back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
};

pub struct Line {
    url: String,
    is_cut: Arc<AtomicBool>,
}

impl Line {
    pub async fn to(database: &str) -> Self {
        let mut url = url::Url::parse(database).unwrap();
        let far = format!("127.0.0.1:{}", url.port().expect("a server with a port"));
        let near = TcpListener::bind("127.0.0.1:0").await.unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(near.local_addr().unwrap().port())).unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = is_cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = near.accept().await {
                if !cut.load(SeqCst) {
                    let server = TcpStream::connect(&far).await.unwrap();
                    tokio::spawn(carry(client, server, cut.clone()));
                }
            }
        });
        Self {
            url: url.to_string(),
            is_cut,
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn cut(&self) {
        self.is_cut.store(true, SeqCst);
    }

    pub fn mend(&self) {
        self.is_cut.store(false, SeqCst);
    }
}

async fn carry(client: TcpStream, server: TcpStream, is_cut: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
    let mut piece = vec![0; 64 * 1024];
    loop {
        match from_server.read(&mut piece).await {
            Ok(length) if length > 0 && !is_cut.load(SeqCst) => {
                if to_client.write_all(&piece[..length]).await.is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    // Both ways end here, so that whoever waits for an answer learns that none will come.
    there.abort();
}
