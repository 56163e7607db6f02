//! A running testbed, from start to client.

use crate::build::{self, Built};
use crate::components::{Setting, apiserver, controller_manager, coredns, etcd, kube_proxy, kwok, scheduler};
use crate::error::{Doing, Error, Result, refused};
use crate::guard::{self, CONTROL};
use crate::layout::{self, Layout, MAX_INSTANCES, NODES};
use crate::profiles::{self, Profile};
use crate::space::Space;
use crate::{certs, load, machine, network, node};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    pub profile: Profile,
    /// Fake nodes besides the two real ones.
    pub fake_nodes: usize,
    /// Real nodes: two, or none where only the control plane matters.
    pub real_nodes: bool,
    /// Whether anything acts on what is stored. Without controllers, scheduler and KWOK, a cluster of any size stands still.
    pub controllers: bool,
    /// An etcd folder to start from.
    pub snapshot: Option<PathBuf>,
    /// A fixed number, or the first that is free.
    pub instance: Option<u8>,
}

impl std::fmt::Display for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format!("{:?}", self.profile).to_lowercase();
        write!(f, "profile {name}, {} fake nodes", self.fake_nodes)?;
        match (self.real_nodes, self.controllers) {
            (true, _) => Ok(()),
            (false, true) => write!(f, ", no real nodes"),
            (false, false) => write!(f, ", standing still with pods"),
        }
    }
}

impl Options {
    /// Whether both make the same cluster.
    pub fn like(&self, other: &Options) -> bool {
        (self.profile, self.fake_nodes, self.real_nodes, self.controllers)
            == (other.profile, other.fake_nodes, other.real_nodes, other.controllers)
    }

    pub fn new(profile: Profile) -> Self {
        Options {
            profile,
            fake_nodes: 0,
            real_nodes: true,
            controllers: true,
            snapshot: None,
            instance: None,
        }
    }
}

/// A running instance. One that was started `tied` ends when this is dropped or its process dies, whichever way.
pub struct Testbed {
    pub layout: Layout,
    pub options: Options,
    pub built: Built,
    tie: Option<guard::Started>,
}

impl Testbed {
    /// Starts an instance that lives as long as this process. For tests.
    pub async fn start(options: Options) -> Result<Testbed> {
        Self::start_with(options, true, &|line| eprintln!("testbed: {line}")).await
    }

    /// Starts an instance, tied to this process or until `down`.
    pub async fn start_with(mut options: Options, tied: bool, say: &dyn Fn(&str)) -> Result<Testbed> {
        machine::check()?;
        options.instance.map(Layout::new).map_or(Ok(()), guard::only_here)?;
        machine::room(&layout::state(), ROOM_MB)?;
        let built = build::all(say)?;
        let started = Instant::now();
        let (layout, tie) = claim(options.instance, tied)?;
        // A person's `up` holds this since before it looked.
        let _alone = if tied { guard::try_starting(layout)? } else { None };
        options.instance = Some(layout.number);
        let testbed = Testbed {
            layout,
            options,
            built,
            tie: Some(tie),
        };
        if let Err(error) = testbed.bring_up(say).await {
            // Half of an instance is of no use, but its logs may tell more than the error does.
            let _ = guard::stop(layout);
            // Under two state folders at the same moment, the second finds the link taken.
            let error = guard::only_here(layout).err().unwrap_or(error);
            return Err(Error::Refused(format!(
                "{error}\nThe logs stay in {}/*/log until the next `tests/testbed/up --instance {1}`, or `tests/testbed/down --instance {1}`",
                layout.dir().display(),
                layout.number
            )));
        }
        say(&format!(
            "instance {} is up after {:.1} s",
            layout.number,
            started.elapsed().as_secs_f64()
        ));
        Ok(testbed)
    }

    /// Finds an instance that runs.
    pub fn attach(number: u8) -> Result<Testbed> {
        let layout = Layout::new(number);
        if !guard::runs(layout)? {
            guard::only_here(layout)?;
            return Err(Error::Refused(format!(
                "instance {number} does not run; `tests/testbed/up --instance {number}` starts it"
            )));
        }
        // Who finds these need not build anything to know what runs.
        Ok(Testbed {
            layout,
            options: read(&layout.options(), number)?,
            built: read(&layout.built(), number)?,
            tie: None,
        })
    }

    pub fn setting(&self) -> Setting {
        Setting {
            layout: self.layout,
            bin: self.built.bin.clone(),
        }
    }

    pub fn control(&self) -> Space {
        Space::new(CONTROL, self.layout.space_dir(CONTROL))
    }

    pub fn node(&self, name: &str) -> Space {
        node::space(self.layout, name)
    }

    pub fn nodes(&self) -> &'static [&'static str] {
        if self.options.real_nodes { &NODES } else { &[] }
    }

    /// A real node's space, for whoever wants it alive.
    pub fn living_node(&self, name: &str) -> Result<Space> {
        let number = self.layout.number;
        if !self.nodes().contains(&name) {
            return Err(Error::Refused(match self.nodes() {
                [] => format!("instance {number} has no real nodes; it was started with --no-real-nodes or --pods"),
                nodes => format!(
                    "instance {number} has no real node {name}; there are {}",
                    nodes.join(" and ")
                ),
            }));
        }
        let space = self.node(name);
        if !space.alive() {
            return Err(Error::Refused(format!(
                "{name} is killed; `tests/testbed/run fault revive-node {name} --instance {number}` brings it back"
            )));
        }
        Ok(space)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig()
    }

    /// An administrator's client. Make one per test: its connections belong to the runtime that made it.
    pub async fn client(&self) -> Result<Client> {
        client_of(&std::fs::read_to_string(self.kubeconfig()).doing("cannot read the kubeconfig")?).await
    }

    /// Runs kubectl, as an administrator.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        let mut line = vec![self.built.bin.join("kubectl").to_string_lossy().into_owned()];
        line.push(format!("--kubeconfig={}", self.kubeconfig().display()));
        line.extend(words.iter().map(|w| w.to_string()));
        crate::command::run(&mut crate::command::command(line))
    }

    async fn bring_up(&self, say: &dyn Fn(&str)) -> Result<()> {
        save(&self.layout.built(), &self.built)?;
        certs::make(self.layout)?;
        network::control(self.layout)?;
        self.start_control_plane().await?;
        say("control plane answers");
        let client = self.client().await?;
        if self.options.real_nodes {
            let (setting, store) = (self.setting(), self.built.store.clone());
            std::thread::scope(|scope| {
                let starts: Vec<_> = NODES
                    .iter()
                    .map(|n| scope.spawn(|| node::up(&setting, n, &store)))
                    .collect();
                starts
                    .into_iter()
                    .try_for_each(|s| s.join().map_err(|_| Error::Refused("a node's start panicked".into()))?)
            })?;
            for node in NODES {
                self.await_ready(&client, node, PATIENCE).await?;
                node::start_firewall(&self.setting(), node)?;
            }
            say("both nodes are Ready");
            self.control().start(kube_proxy::program(&self.setting(), CONTROL)?)?;
            profiles::install(self, &client, say).await?;
        }
        if self.options.snapshot.is_none() {
            load::nodes::create(&client, self.layout, self.options.fake_nodes).await?;
        }
        // What ended while the rest came up would be missed much later, as an odd failure of some test.
        if let Some(ended) = self.missing().first() {
            return Err(self.keeps_ending(ended));
        }
        save(&self.layout.options(), &self.options)
    }

    async fn start_control_plane(&self) -> Result<()> {
        let setting = self.setting();
        let control = self.control();
        if let Some(snapshot) = &self.options.snapshot {
            load::snapshot::restore(snapshot, &etcd::data_dir(&setting))?;
        }
        control.start(etcd::program(&setting))?;
        self.start_api_server().await?;
        self.start_controllers()
    }

    fn start_controllers(&self) -> Result<()> {
        if !self.options.controllers {
            return Ok(());
        }
        let (control, setting) = (self.control(), self.setting());
        control.start(controller_manager::program(&setting))?;
        control.start(scheduler::program(&setting))?;
        control.start(coredns::program(&setting)?)?;
        let stages = self.built.manifests.join("kwok-stages.yaml");
        control.start(kwok::program(
            &setting,
            &stages,
            &load::logs::kwok_config(self.layout)?,
        )?)
    }

    /// Starts the API server and waits until it says that it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        self.control().start(apiserver::program(&self.setting())?)?;
        let started = Instant::now();
        loop {
            if self.api_ready().await {
                return Ok(());
            }
            let ended = self
                .control()
                .programs()?
                .into_iter()
                .find(|p| !p.alive && ["etcd", "kube-apiserver"].contains(&p.name.as_str()));
            if let Some(program) = ended {
                return Err(Error::Refused(format!(
                    "{} ended:\n{}",
                    program.name,
                    self.control().log_tail(&program.name)
                )));
            }
            if started.elapsed() > PATIENCE {
                let last = format!(":\n{}", self.control().log_tail("kube-apiserver"));
                return Err(Error::Timeout {
                    what: "the API server".into(),
                    after: started.elapsed(),
                    last,
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn api_ready(&self) -> bool {
        let Ok(client) = self.client().await else { return false };
        let Ok(request) = hyper::Request::get("/readyz").body(Vec::new()) else {
            return false;
        };
        let answer = tokio::time::timeout(Duration::from_secs(10), client.request_text(request)).await;
        matches!(answer, Ok(Ok(text)) if text == "ok")
    }

    /// Waits for a node's Ready condition.
    pub async fn await_ready(&self, client: &Client, node: &str, within: Duration) -> Result<Duration> {
        let nodes: Api<Node> = Api::all(client.clone());
        let started = Instant::now();
        loop {
            let found = nodes.get_opt(node).await.doing("cannot read a node")?;
            if found.is_some_and(|n| condition(&n, "Ready") == "True") {
                return Ok(started.elapsed());
            }
            if started.elapsed() > within {
                let last = format!(":\n{}", self.node(node).log_tail("kubelet"));
                return Err(Error::Timeout {
                    what: format!("{node} to be Ready"),
                    after: within,
                    last,
                });
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What should run and does not, as (space, program). Empty when all is well.
    pub fn missing(&self) -> Vec<(String, String)> {
        let mut missing = Vec::new();
        let mut look = |space: Space, wanted: &[&str]| {
            let running = space.programs().unwrap_or_default();
            for name in wanted
                .iter()
                .filter(|name| !running.iter().any(|r| r.name == **name && r.alive))
            {
                missing.push((space.name.clone(), name.to_string()));
            }
        };
        look(self.control(), &["etcd", "kube-apiserver"]);
        if self.options.controllers {
            look(
                self.control(),
                &["kube-controller-manager", "kube-scheduler", "coredns", "kwok"],
            );
        }
        for node in self.nodes() {
            look(self.node(node), &["containerd", "kubelet", "kube-proxy", "kube-router"]);
        }
        missing
    }

    /// Starts what is missing, a whole node where its space is gone.
    pub async fn mend(&self) -> Result<()> {
        // What lost its API server may end a moment after it was found alive, so one look is not enough.
        for _ in 0..5 {
            self.start_missing().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.missing().is_empty() {
                return Ok(());
            }
        }
        match self.missing().first() {
            Some(ended) => Err(self.keeps_ending(ended)),
            None => Ok(()),
        }
    }

    fn keeps_ending(&self, (space, program): &(String, String)) -> Error {
        let tail = Space::new(space, self.layout.space_dir(space)).log_tail(program);
        Error::Refused(format!("{program} on {space} ended:\n{tail}"))
    }

    async fn start_missing(&self) -> Result<()> {
        let setting = self.setting();
        let control = self.control();
        if !control.alive() {
            return Err(Error::Refused(
                "the control plane's space is gone; `down`, then `up`".into(),
            ));
        }
        control.start(etcd::program(&setting))?;
        self.start_api_server().await?;
        self.start_controllers()?;
        if self.options.real_nodes {
            control.start(kube_proxy::program(&setting, CONTROL)?)?;
        }
        let client = self.client().await?;
        for node in self.nodes() {
            self.start_node(node)?;
            self.await_ready(&client, node, PATIENCE).await?;
        }
        Ok(())
    }

    /// Brings a node's programs back; all of the node, if it was killed.
    pub fn start_node(&self, name: &str) -> Result<()> {
        let space = self.node(name);
        let setting = self.setting();
        if !space.alive() {
            guard::revive(self.layout, name)?;
            node::up(&setting, name, &self.built.store)?;
            return node::start_firewall(&setting, name);
        }
        node::start_runtime(&space)?;
        space.start(crate::components::kubelet::program(&setting, name)?)?;
        space.start(kube_proxy::program(&setting, name)?)?;
        node::start_firewall(&setting, name)
    }

    /// Ends the instance and waits until nothing is left.
    pub fn down(mut self) -> Result<()> {
        self.tie = None;
        guard::end(self.layout)
    }
}

/// How long a start may take before it counts as failed. Seconds on an idle machine; minutes were seen with thirty busy processes beside it.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a state folder must have free: twice what an instance writes before anything runs on it.
const ROOM_MB: u64 = 300;

fn save(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Refused(e.to_string()))?;
    layout::write(path, text)
}

fn read<T: DeserializeOwned>(path: &Path, number: u8) -> Result<T> {
    let text = std::fs::read_to_string(path).map_err(|_| {
        Error::Refused(format!(
            "instance {number} is starting, or its start was broken off; `tests/testbed/up --instance {number}` waits for the one and \
             replaces the other"
        ))
    })?;
    serde_json::from_str(&text).map_err(|e| refused("an instance's record")(&e))
}

fn claim(wanted: Option<u8>, tied: bool) -> Result<(Layout, guard::Started)> {
    let numbers: Vec<u8> = wanted.map_or_else(|| (1..MAX_INSTANCES).collect(), |n| vec![n]);
    for number in numbers {
        if let Some(started) = guard::start(&crate::program()?, Layout::new(number), tied)? {
            return Ok((Layout::new(number), started));
        }
    }
    Err(Error::Refused(match wanted {
        Some(number) => format!("instance {number} runs already"),
        None => format!("all {MAX_INSTANCES} instances are in use"),
    }))
}

/// A client from the text of a kubeconfig.
pub async fn client_of(kubeconfig: &str) -> Result<Client> {
    Client::try_from(config_of(kubeconfig).await?).doing("cannot make a client")
}

/// The same for whoever wants to change something about it first.
pub async fn config_of(kubeconfig: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|e| refused("a kubeconfig")(&e))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|e| refused("a kubeconfig")(&e))?;
    // A proxy that somebody's environment names has no business between two processes of one machine.
    config.proxy_url = None;
    Ok(config)
}

/// The status of a node's condition; empty when it has none of that type.
pub fn condition(node: &Node, kind: &str) -> String {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions
        .and_then(|list| list.iter().find(|c| c.type_ == kind))
        .map(|c| c.status.clone())
        .unwrap_or_default()
}
