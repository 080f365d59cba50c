"""The Hugging Face hub: plans for its models, and search.

Built on the package `huggingface_hub` (the extra `hub`): it knows the endpoint (HF_ENDPOINT), the
token, offline mode (HF_HUB_OFFLINE) and the layout of the cache, lists a repository, and links a
blob into a snapshot. The bytes come by `download`, because the package begins a file again if it
is interrupted, and does not verify checksums.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ingot.config import config
from ingot.errors import (
    AccessDeniedError,
    DownloadError,
    MemoryShortageError,
    MissingPackageError,
    ModelNotFoundError,
    StoreError,
)
from ingot.files import write_file
from ingot.machine import available_memory
from ingot.store.checkpoint_files import ENDINGS, CheckpointFiles, checkpoint_files
from ingot.store.download import Checksum, Source
from ingot.store.http import LONGEST_WAIT, TransientError, patiently
from ingot.store.hub_cache import repo_folder
from ingot.store.names import HubName, is_safe_path
from ingot.store.plan import Plan, PlannedFile
from ingot.store.quantizations import choices_of, choose, memory_needed, projector_of
from ingot.store.whole_checkpoints import note

if TYPE_CHECKING:
    from types import ModuleType

_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LARGEST = 1 << 44  # bytes
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository."""

    path: str
    size: int
    checksum: Checksum


@dataclass(frozen=True, slots=True)
class FoundRepo:
    """A repository that a search found."""

    name: str
    downloads: int
    likes: int
    updated: str  # a date, or empty


@dataclass(frozen=True, slots=True)
class _Listing:
    """A commit of a repository and its files."""

    hub: "ModuleType"
    name: HubName
    commit: str
    siblings: tuple[Any, ...]

    @classmethod
    def ask(cls, name: HubName, commit: str | None = None) -> "_Listing":
        """The newest commit; or one that is in the cache, which nobody is asked for twice."""
        hub = _package()
        client = hub.HfApi(endpoint=hub.constants.ENDPOINT, library_name="ingot")
        ask = partial(client.model_info, name.repo, revision=commit, files_metadata=True)
        info = _asked(ask, name) if commit is None else _answer(ask, name)
        commit = str(info.sha)
        if not _COMMIT.fullmatch(commit):
            raise DownloadError(f"the hub names no commit of {name.repo}")
        return cls(hub, name, commit, tuple(info.siblings or ()))

    def files(self, *endings: str) -> list[RepoFile]:
        return [file for sibling in self.siblings if (file := _repo_file(sibling, endings))]

    def checkpoint(self) -> CheckpointFiles[RepoFile] | None:
        return checkpoint_files(self.files(*ENDINGS))

    def plan(
        self,
        weights: Sequence[RepoFile],
        others: Sequence[RepoFile],
        choice: str | None,
        *,
        is_folder: bool = False,  # the model is the folder of its files, not the first of them
    ) -> Plan:
        headers = {
            key.title(): value
            for key, value in self.hub.utils.build_hf_headers(library_name="ingot").items()
            if key.lower() == "authorization"
        }
        endpoint, repo = self.hub.constants.ENDPOINT, self.name.repo

        def planned(file: RepoFile, *, weights: bool) -> PlannedFile:
            url = self.hub.hf_hub_url(repo, file.path, revision=self.commit, endpoint=endpoint)
            source = Source(url, file.path, file.size, file.checksum, headers)
            target = repo_folder(repo) / "blobs" / file.checksum.value
            return PlannedFile(source, target, weights)

        wanted = [planned(file, weights=True) for file in weights]
        wanted += [planned(file, weights=False) for file in others]
        paths = [file.path for file in (*weights, *others)]

        def finish() -> Path:
            first = _link_all(self.hub, self.name, paths, self.commit)
            if not is_folder:
                return first
            note(self.name.repo, first.parent, paths)
            return first.parent

        return Plan(str(self.name), tuple(wanted), finish, choice)


def plan_hub(name: HubName) -> Plan:
    """How to get a model of the hub: a GGUF file, or the checkpoint if there is no such file."""
    listing = _Listing.ask(name)
    files = listing.files(".gguf")
    choices = choices_of(files)
    if not choices:
        return _plan_checkpoint_instead(listing)
    where = f"hf:{name.repo}"
    choice, said = choose(choices, name.quantization, name.file, available_memory(), where)
    projector = projector_of(files)
    return listing.plan(choice.files, [projector] if projector else [], said)


def plan_checkpoint(name: HubName, commit: str | None = None) -> Plan:
    """How to get a checkpoint of the hub: safetensors, and the files that describe them.

    `commit` is one of which the cache has files.
    """
    listing = _Listing.ask(name, commit)
    checkpoint = listing.checkpoint()
    if checkpoint is None:
        raise ModelNotFoundError(
            f"hf:{name.repo} is no checkpoint: it needs config.json and safetensors files"
        )
    _require_vocabulary(name, checkpoint)
    return listing.plan(checkpoint.weights, checkpoint.others, None, is_folder=True)


def has_only_checkpoint(name: HubName) -> bool:
    """Whether the repository of a name has a checkpoint and no GGUF file."""
    listing = _Listing.ask(name)
    return not choices_of(listing.files(".gguf")) and listing.checkpoint() is not None


def _plan_checkpoint_instead(listing: _Listing) -> Plan:
    """The checkpoint of a repository without GGUF files, if the name leaves that open."""
    name, checkpoint = listing.name, listing.checkpoint()
    where = f"hf:{name.repo}"
    if checkpoint is None:
        raise ModelNotFoundError(
            f"{where} has no GGUF file; find a repository that has one with "
            f"`ingot search {name.repo.partition('/')[2]}`"
        )
    if name.quantization or name.file:
        raise ModelNotFoundError(
            f"{where} has no GGUF file; `ingot pull {where}` downloads its checkpoint, and "
            f"`ingot run {where}:q8_0` quantizes it"
        )
    _require_vocabulary(name, checkpoint)
    needed, room = memory_needed(sum(file.size for file in checkpoint.weights)), available_memory()
    about = f"about {needed / 2**30:.1f} of {room / 2**30:.1f} GiB of memory"
    if needed > room:
        raise MemoryShortageError(
            f"{where} has only a checkpoint, which takes {about}; `ingot run {where}:q4_k_m` "
            f"quantizes it, `ingot convert {where}` makes a file of it"
        )
    said = f"taking the checkpoint, because there is no GGUF file: {about}"
    return listing.plan(checkpoint.weights, checkpoint.others, said, is_folder=True)


def _require_vocabulary(name: HubName, checkpoint: CheckpointFiles[RepoFile]) -> None:
    """Refuse a checkpoint that cannot run before its weights are downloaded."""
    if not checkpoint.has_vocabulary:
        raise ModelNotFoundError(
            f"hf:{name.repo} has no vocabulary that Ingot reads (tokenizer.json, tekken.json, "
            "*.model or *.tiktoken); take a repository that has one"
        )


def search_hub(words: str, limit: int) -> list[FoundRepo]:
    """Repositories with GGUF files whose names contain the words, most downloaded first."""
    hub = _package()
    client = hub.HfApi(endpoint=hub.constants.ENDPOINT, library_name="ingot")

    def ask() -> list[Any]:
        return list(client.list_models(search=words, filter="gguf", sort="downloads", limit=limit))

    return [
        FoundRepo(
            name=str(repo.id),
            downloads=int(repo.downloads or 0),
            likes=int(repo.likes or 0),
            updated=str(repo.last_modified or repo.created_at or "")[:10],
        )
        for repo in _asked(ask, None)
    ]


def _package() -> "ModuleType":
    try:
        import huggingface_hub  # noqa: PLC0415 (an extra)
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.utils  # noqa: PLC0415
    except ImportError as error:
        raise MissingPackageError(
            "models of the hub need the package huggingface_hub: pip install 'ingot-llm[hub]'"
        ) from error
    return huggingface_hub


def _repo_file(sibling: Any, endings: tuple[str, ...]) -> RepoFile | None:
    """A file of the listing; None if it is of another kind, or if its description is malformed."""
    path, size = sibling.rfilename, sibling.size
    lfs = getattr(sibling, "lfs", None)
    value = (lfs["sha256"] if isinstance(lfs, dict) else lfs.sha256) if lfs else sibling.blob_id
    valid = (
        isinstance(path, str)
        and path.endswith(endings)
        and is_safe_path(path)
        and type(size) is int
        and 0 <= size <= _LARGEST
        and isinstance(value, str)
        and _CHECKSUM.fullmatch(value)
    )
    return RepoFile(path, size, Checksum(value, git=not lfs)) if valid else None


def _link_all(hub: "ModuleType", name: HubName, paths: list[str], commit: str) -> Path:
    """Let the package link the blobs, which are in its cache, into a snapshot of `main`."""
    links = [
        _asked(
            partial(
                hub.hf_hub_download,
                name.repo,
                path,
                revision=commit,
                cache_dir=config().hub_cache,
                endpoint=hub.constants.ENDPOINT,
                library_name="ingot",
            ),
            name,
        )
        for path in paths
    ]
    main = repo_folder(name.repo) / "refs" / "main"
    main.parent.mkdir(parents=True, exist_ok=True)
    write_file(main, [commit.encode()])
    return Path(links[0])


def _asked(ask: Callable[[], _Result], name: HubName | None) -> _Result:
    """The answer of the hub; its errors become ours, and those that may pass are tried again."""
    return patiently(lambda: _answer(ask, name))


def _answer(ask: Callable[[], _Result], name: HubName | None) -> _Result:
    try:
        return ask()
    except Exception as error:  # its HTTP library, and so its errors, differ by version
        raise _translated(error, name) from error


def _translated(error: Exception, name: HubName | None) -> StoreError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    repo = f"hf:{name.repo}" if name else "the hub"
    if "GatedRepoError" in kinds and name:
        return AccessDeniedError(
            f"{repo} wants you to accept its terms at https://huggingface.co/{name.repo}; then log "
            "in with `hf auth login`, or set HF_TOKEN"
        )
    if "OfflineModeIsEnabled" in kinds:
        return DownloadError(f"{repo} is not in the cache, and HF_HUB_OFFLINE is set")
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return StoreError(f"{error.filename} cannot be written: {error.strerror}; set HF_HOME")
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if name and ("RepositoryNotFoundError" in kinds or status == 404):
        hint = f", and there is no file {name.repo!r}" if name.plain else ""
        return ModelNotFoundError(
            f"the hub has no repository {name.repo!r}{hint}; if it is private, log in with "
            f"`hf auth login`; `ingot search {name.repo.partition('/')[2]}` finds others"
        )
    if status in (401, 403):
        return AccessDeniedError(f"the hub refuses your token for {repo}: `hf auth login`")
    if status is not None and status != 429 and status < 500:
        return DownloadError(f"the hub answers with status {status} for {repo}")
    if status is not None:
        wait = str(response.headers.get("Retry-After", "")) if response is not None else ""
        seconds = min(float(wait), LONGEST_WAIT) if wait.isdecimal() else None
        return TransientError(f"the hub answers with status {status} for {repo}", seconds)
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return TransientError(f"the hub cannot be reached: {reason}")
