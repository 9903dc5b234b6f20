//! Prints what the analysis makes of the libraries named as arguments.
use std::collections::BTreeMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let file = std::fs::read(&path)?;
        let start = std::time::Instant::now();
        let found = runahead_sites::find::find(&file)?;
        println!("{path}: {} sites, {:?}", found.sites.len(), start.elapsed());
        let mut refusals = BTreeMap::<String, Vec<u64>>::new();
        for (address, refusal) in &found.refused {
            refusals.entry(format!("{refusal:?}")).or_default().push(*address);
        }
        for (refusal, addresses) in refusals {
            println!(
                "  refused {:4} {refusal}: {:x?}",
                addresses.len(),
                &addresses[..addresses.len().min(40)]
            );
        }
        println!("  unseen: {}", found.unseen);
        let mut numbers = BTreeMap::<i16, Vec<u64>>::new();
        for site in &found.sites {
            numbers.entry(site.number).or_default().push(site.address);
        }
        for (number, addresses) in numbers {
            println!("  {number:4}: {addresses:x?}");
        }
    }
    Ok(())
}
