"""Downloads Apache Kafka's jars once with Maven into the user's cache, shared by all stacks.

Maven's configuration defines the repository or mirror.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from deploy.local.child_process import AT_ONCE
from deploy.local.errors import StackError
from deploy.local.process_group import ProcessGroup

VERSION = "4.1.0"
KAFKA = "kafka_2.13"
"""The broker's artifact."""
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_SECONDS = 300.0
# Kafka's artifact has no logging backend; without one its errors are lost.
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>headstart</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
"""


def kafka_jars(group: ProcessGroup, name: str, artifact: str = KAFKA) -> Path:
    """Return the folder with the jars of a Kafka artifact; the first call downloads them.

    `name`: a name claimed in `group` for the download.
    """
    cache = _cache()
    folder = f"{artifact.partition('_')[0]}-{VERSION}"
    jars = cache / folder
    if jars.is_dir():
        return jars
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{folder}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits for a download by another process
            if not jars.is_dir():
                _fetch(group, name, artifact, jars)
    except OSError as error:
        raise StackError(
            f"cannot keep Apache Kafka in {cache} ({error.strerror}): set XDG_CACHE_HOME to a "
            "writable directory"
        ) from error
    return jars


def _fetch(group: ProcessGroup, name: str, artifact: str, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise StackError(
            "Apache Kafka is fetched with Maven once, and mvn is not on PATH: install Maven, "
            "use the embedded broker, or give the address of a broker"
        )
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=".part-") as scratch:
        part = Path(scratch)
        (part / "pom.xml").write_text(_POM.format(artifact=artifact, version=VERSION))
        argv = [maven, "--batch-mode", "--quiet", "--strict-checksums", "-Dstyle.color=never"]
        argv += [_PLUGIN, "-f", str(part / "pom.xml"), f"-DoutputDirectory={part / 'jars'}"]
        argv += ["-DincludeScope=runtime", *_repository(part)]
        child = group.spawn(name, argv, AT_ONCE, cwd=part)
        child.finish(_FETCH_SECONDS, "see whether Maven reaches its repository, and start again")
        group.forget(child)
        if not (part / "jars" / f"{artifact}-{VERSION}.jar").exists():
            raise child.failure("downloaded no Kafka")
        (part / "jars").rename(jars)


def _repository(part: Path) -> list[str]:
    """Return no option if Maven's default store is writable, else one for a temporary store."""
    home = Path.home()
    store = home / ".m2"
    if os.access(store if store.exists() else home, os.W_OK):
        return []
    return [f"-Dmaven.repo.local={part / 'm2'}"]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headstart"
