//! A contender as it is stored: as today, and as it was before contenders were stacks.

use serde::Deserialize;

use super::{DIRECTORY, Layer};
use crate::environment::EnvironmentSpec;
use crate::name;

/// All fields of both forms.
#[derive(Deserialize)]
pub struct StoredContender {
    #[serde(deserialize_with = "name::read")]
    label: String,
    store: Option<String>,
    #[serde(default)]
    layers: Vec<AnyLayer>,
    #[serde(default)]
    above: usize,
    aged: Option<String>,
    #[serde(default)]
    environment: EnvironmentSpec,
    file_system: Option<String>,
    #[serde(alias = "directory")]
    place: Option<StoredEnvironment>,
    #[serde(default)]
    mkfs_options: Vec<String>,
    #[serde(default)]
    mount_options: Vec<String>,
}

/// A layer; before, as `NAME[:ARGUMENT]`, what lay below the file system alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum AnyLayer {
    Text(String),
    Layer(Layer),
}

/// The environment, before, or the path of a directory.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredEnvironment {
    ThisHost,
    Guest(String),
    Ssh(String),
    #[serde(untagged)]
    Directory(String),
}

impl TryFrom<StoredContender> for super::Contender {
    type Error = &'static str;

    fn try_from(stored: StoredContender) -> Result<super::Contender, &'static str> {
        let StoredContender {
            label,
            above,
            aged,
            mut environment,
            place,
            mkfs_options,
            mount_options,
            ..
        } = stored;
        let layers = stored.layers.into_iter().map(|layer| match layer {
            AnyLayer::Text(text) => Layer::named(&text),
            AnyLayer::Layer(layer) => layer,
        });
        let mut layers: Vec<Layer> = layers.collect();
        if let Some(name) = stored.file_system {
            layers.insert(0, Layer { name, argument: None, options: mkfs_options, mount_options });
        }
        let Some(base) = layers.get_mut(above) else {
            return Err("a contender has no file system");
        };
        match place {
            Some(StoredEnvironment::Directory(path)) => base.argument = Some(path),
            Some(StoredEnvironment::Guest(guest)) => environment = EnvironmentSpec::Guest(guest),
            Some(StoredEnvironment::Ssh(host)) => environment = EnvironmentSpec::Ssh(host),
            Some(StoredEnvironment::ThisHost) | None => {}
        }
        if base.name == DIRECTORY
            && (base.argument.is_none()
                || !super::can_have_directory(&environment)
                || aged.is_some()
                || layers.len() > 1)
        {
            return Err("a directory is no path of this machine or of several alone");
        }
        if layers[above].name != DIRECTORY && environment.has_common_directory() {
            return Err(super::ONLY_DIRECTORIES);
        }
        let store = stored.store;
        Ok(super::Contender { label, store, layers, above, aged, environment })
    }
}
