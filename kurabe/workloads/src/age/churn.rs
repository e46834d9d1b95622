//! `churn`: files that come and go, with published sizes, ages and depths.

use super::distribution::{ALL, Depth, Distribution};
use super::population::{File, FileEvent, Population};
use super::{AgeProfile, AgeingDirectory, History};

pub(super) static CHURN: AgeProfile = AgeProfile {
    name: "churn",
    notation: "churn[:fill=PERCENT][,times=N][,sizes=agrawal|douceur|meyer][,copied]",
    summary: "files created and deleted until N times the capacity is written (fill=80%, times=5)",
    read: |keys| {
        let (fill, times) = (keys.fill(0.8)?, keys.times(5.0)?);
        let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
        let name = keys.one_of("sizes", &names)?.unwrap_or(ALL[0].name);
        let distribution = ALL.iter().find(|one| one.name == name).expect("it is one of them");
        Ok(Box::new(Churn { fill, times, distribution }))
    },
};

struct Churn {
    fill: f64,
    times: f64,
    distribution: &'static Distribution,
}

impl Churn {
    fn population(&self, capacity_bytes: u64, seed: u64) -> Population {
        Population::new(self.distribution.shape(), capacity_bytes, self.fill, self.times, seed)
    }
}

impl History for Churn {
    fn check(&self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn live(&self, place: &mut AgeingDirectory<'_>) -> Result<(), String> {
        let depths = self.distribution.shape().depths;
        let mut population = self.population(place.capacity_bytes, place.seed);
        for event in population.by_ref() {
            match event {
                FileEvent::Born(file) => {
                    place.write(&path_of(&depths, &file), file.number, file.size_bytes)?;
                }
                FileEvent::Gone(file) => place.remove(&path_of(&depths, &file))?,
            }
        }
        place.say(population.shares());
        Ok(())
    }

    fn foretell(&self, capacity_bytes: u64, seed: u64) -> String {
        let mut population = self.population(capacity_bytes, seed);
        population.by_ref().for_each(drop);
        let written = trust::quantity::about_text(population.written_bytes());
        format!(
            "{} files at the end, {written} written\n{}",
            population.living(),
            population.shares()
        )
    }
}

/// The directories of each depth lie in those of the depth before, in turn.
fn path_of(depths: &[Depth], file: &File) -> String {
    let (mut depth, mut number) = file.directory;
    let mut path = format!("f{}", file.number);
    // A depth that the data leave out has one directory.
    let mut names = depths[depth].depth;
    while names > 0 {
        path = format!("{number}/{path}");
        names -= 1;
        if depth > 0 && depths[depth - 1].depth == names {
            depth -= 1;
            number %= depths[depth].directories;
        } else {
            number = 0;
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_as_deep_as_the_data_say() {
        for distribution in &ALL {
            let depths = distribution.shape().depths;
            for (place, depth) in depths.iter().enumerate() {
                let file =
                    File { number: 7, size_bytes: 1, directory: (place, depth.directories - 1) };
                let path = path_of(&depths, &file);
                assert_eq!(path.split('/').count() as u32, depth.depth + 1, "{path}");
            }
        }
    }
}
