//! Facts of this machine: who it is, what it has, how it is now.

use std::{fs, io, path::Path};

use nix::sys::statvfs::statvfs;
use nvml_wrapper::{Nvml, enum_wrappers::device::TemperatureSensor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sysinfo::{Components, Disks, Networks, System};
use trainyard_core::plan::node::{GpuLook, MachineLook};

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

/// An id that stays with this machine: a digest of its own id, which is not for others to see, or a drawn one kept
/// in the data folder where the system has none.
pub fn id(data: &Path) -> Result<String, MachineError> {
    for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        if let Ok(text) = fs::read_to_string(path)
            && text.trim().len() >= 32
        {
            let digest = Sha256::digest(format!("trainyard machine {}", text.trim()));
            return Ok(data_encoding::HEXLOWER.encode(&digest[..16]));
        }
    }
    let path = data.join("machine-id");
    let fault = |source| MachineError::Io {
        path: path.display().to_string(),
        source,
    };
    match fs::read_to_string(&path) {
        Ok(text) if text.trim().len() == 32 => Ok(text.trim().to_owned()),
        Ok(_) => Err(fault(io::Error::other(
            "this is no machine id; remove the file to get a new one",
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = data_encoding::HEXLOWER.encode(uuid::Uuid::new_v4().as_bytes());
            fs::write(&path, &id).map_err(fault)?;
            Ok(id)
        }
        Err(error) => Err(fault(error)),
    }
}

pub fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| "this-machine".into())
}

/// Changes with every start of the system; empty where the kernel tells none.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn unreadable(error: sysinfo::Error) -> MachineError {
    MachineError::Io {
        path: "/proc".into(),
        source: io::Error::other(error.to_string()),
    }
}

/// One look, as the node's page shows it. Sizes in bytes, rates since the look before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Share of all cores in use since the look before, in percent.
    pub cpu_percent: f64,
    pub load: Option<[f64; 3]>,
    pub memory_total: u64,
    pub memory_available: u64,
    pub swap_used: u64,
    pub disks: Vec<DiskSample>,
    pub sensors: Vec<SensorSample>,
    pub gpus: Vec<GpuSample>,
    pub network_received: u64,
    pub network_sent: u64,
    pub uptime_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskSample {
    pub mount: String,
    pub total: u64,
    pub free: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SensorSample {
    pub name: String,
    pub celsius: f64,
    pub limit: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    pub index: u32,
    pub name: String,
    pub utilisation_percent: Option<u32>,
    pub memory_total: Option<u64>,
    pub memory_used: Option<u64>,
    pub celsius: Option<f64>,
    pub watts: Option<f64>,
    pub memory_errors: Option<u64>,
    pub lost: bool,
}

/// The handles that a look needs. Blocking.
pub struct Machine {
    system: System,
    /// What the system does not let us see is left out of samples.
    networks: Option<Networks>,
    nvml: Option<Nvml>,
}

impl Machine {
    pub fn open() -> Result<Self, MachineError> {
        let mut system = System::new().map_err(unreadable)?;
        system.refresh_cpu_all();
        // No library: no NVIDIA driver, and so no GPU of theirs to be seen.
        Ok(Self {
            system,
            networks: Networks::new_with_refreshed_list().ok(),
            nvml: Nvml::init().ok(),
        })
    }

    pub fn cores(&self) -> usize {
        self.system.cpus().len().max(1)
    }

    pub fn gpu_count(&self) -> u32 {
        self.nvml
            .as_ref()
            .and_then(|nvml| nvml.device_count().ok())
            .unwrap_or(0)
    }

    /// What does not change while the machine runs.
    pub fn facts(&self) -> serde_json::Value {
        let cpu = self.system.cpus().first();
        serde_json::json!({
            "host": host_name(),
            "boot_id": boot_id(),
            "os": System::long_os_version().ok(),
            "kernel": System::kernel_version().ok(),
            "architecture": std::env::consts::ARCH,
            "cpu": cpu.map(|cpu| cpu.brand()),
            "cores": self.cores(),
            "gpu_driver": self.nvml.as_ref().and_then(|nvml| nvml.sys_driver_version().ok()),
        })
    }

    pub fn sample(&mut self) -> Sample {
        self.system.refresh_cpu_usage();
        self.system.refresh_memory();
        if let Some(networks) = &mut self.networks {
            networks.refresh(true);
        }
        let traffic = self.networks.iter().flat_map(|networks| networks.values());
        let (received, sent) = traffic.fold((0, 0), |(received, sent), data| {
            (received + data.received(), sent + data.transmitted())
        });
        let disks = Disks::new_with_refreshed_list().ok();
        let sensors = Components::new_with_refreshed_list().ok();
        let mut seen = std::collections::BTreeSet::new();
        Sample {
            cpu_percent: f64::from(self.system.global_cpu_usage()),
            load: System::load_average()
                .ok()
                .map(|load| [load.one, load.five, load.fifteen]),
            memory_total: self.system.total_memory(),
            memory_available: self.system.available_memory(),
            swap_used: self.system.used_swap(),
            // One device is often mounted at several places; the first one stands for it.
            disks: disks
                .iter()
                .flat_map(|disks| disks.iter())
                .filter(|disk| disk.total_space() > 0 && seen.insert(disk.name().to_owned()))
                .map(|disk| DiskSample {
                    mount: disk.mount_point().display().to_string(),
                    total: disk.total_space(),
                    free: disk.available_space(),
                })
                .collect(),
            sensors: sensors
                .iter()
                .flat_map(|sensors| sensors.iter())
                .filter_map(|sensor| {
                    let celsius = f64::from(sensor.temperature()?);
                    let limit = sensor.critical().map(f64::from);
                    celsius.is_finite().then(|| SensorSample {
                        name: sensor.label().to_owned(),
                        celsius,
                        limit,
                    })
                })
                .collect(),
            gpus: self.gpus(),
            network_received: received,
            network_sent: sent,
            uptime_seconds: System::uptime().unwrap_or(0),
        }
    }

    fn gpus(&self) -> Vec<GpuSample> {
        let Some(nvml) = &self.nvml else { return Vec::new() };
        (0..self.gpu_count())
            .map(|index| {
                let Ok(device) = nvml.device_by_index(index) else {
                    return GpuSample {
                        index,
                        name: "unknown".into(),
                        utilisation_percent: None,
                        memory_total: None,
                        memory_used: None,
                        celsius: None,
                        watts: None,
                        memory_errors: None,
                        lost: true,
                    };
                };
                let memory = device.memory_info().ok();
                use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
                GpuSample {
                    index,
                    name: device.name().unwrap_or_else(|_| "unknown".into()),
                    utilisation_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
                    memory_total: memory.as_ref().map(|memory| memory.total),
                    memory_used: memory.as_ref().map(|memory| memory.used),
                    celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
                    watts: device
                        .power_usage()
                        .ok()
                        .map(|milliwatts| f64::from(milliwatts) / 1000.0),
                    memory_errors: device
                        .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
                        .ok(),
                    lost: false,
                }
            })
            .collect()
    }
}

impl Sample {
    /// What the judgement of the machine's health looks at. `data`: the folder that must not run full.
    pub fn look(&self, cores: usize, data: &Path) -> MachineLook {
        // Asked of the folder itself: not every file system that can hold one is in the list of disks.
        let disk = statvfs(data).ok().map(|there| {
            let size = |blocks: u64| blocks * there.fragment_size();
            let mount = data.display().to_string();
            (mount, size(there.blocks()), size(there.blocks_available()))
        });
        let hottest = self
            .sensors
            .iter()
            .max_by(|one, other| one.celsius.total_cmp(&other.celsius));
        MachineLook {
            cores: cores as f64,
            load_1m: self.load.map(|load| load[0]),
            memory_total: self.memory_total,
            memory_available: self.memory_available,
            disk,
            hottest: hottest.map(|sensor| (sensor.name.clone(), sensor.celsius, sensor.limit)),
            gpus: self
                .gpus
                .iter()
                .map(|gpu| GpuLook {
                    index: gpu.index,
                    name: gpu.name.clone(),
                    celsius: gpu.celsius,
                    memory_errors: gpu.memory_errors,
                    lost: gpu.lost,
                })
                .collect(),
        }
    }
}
