"""Every rule, in the order in which causes most likely explain a failure.

A rule is a small pure function in the file of its family. Its docstring is the manual page that
``envlock explain CODE`` prints: first line what it means, then why, then what to do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from envlock.findings import Severity
from envlock.rules import (
    allocator_settings,
    companions,
    containers,
    cuda_libraries,
    devices,
    domain_libraries,
    driver,
    errors,
    gpu,
    gpu_state,
    image_gates,
    installation,
    interpreter,
    library_versions,
    lock_state,
    packages,
    plain,
    preflight,
    requirements,
    system,
    toolkit,
    torch_build,
    torch_state,
    variables,
)
from envlock.rules.base import Rule

RULES: tuple[Rule, ...] = (
    # The hardware and the driver: nothing above them can work.
    gpu.ecc_errors,
    driver.mixed_driver,
    driver.nvml_fails,
    driver.fabric_manager,
    system.device_denied,
    containers.container_toolkit,
    containers.no_driver_inside,
    devices.no_compute_capability,
    driver.wsl_driver_path,
    # Another torch than anyone thinks.
    interpreter.torch_from_elsewhere,
    interpreter.too_few_bits,
    lock_state.no_such_build,
    interpreter.no_wheel_for_python,
    torch_state.cpu_only,
    # torch against the machine.
    driver.forward_compat,
    driver.below_floor,
    containers.image_needs_newer,
    containers.image_requirement,
    gpu.no_kernels,
    devices.no_such_device,
    devices.all_hidden,
    # The files behind the versions.
    installation.files_altered,
    installation.files_missing,
    cuda_libraries.contested_library,
    library_versions.two_majors,
    cuda_libraries.other_cudnn,
    library_versions.older_nccl,
    cuda_libraries.shadowed,
    cuda_libraries.path_names_toolkit,
    cuda_libraries.path_names_cudnn,
    toolkit.nccl_for_other_cuda,
    toolkit.split_site_packages,
    toolkit.mkl_too_new,
    system.glibc_too_old,
    system.libstdcxx_outside,
    system.soname_missing,
    system.plug_in_soname_missing,
    # Another torch build, before what does not fit it any more.
    torch_build.missing,
    torch_build.other_kind,
    torch_build.cuda_build,
    torch_build.rocm_build,
    # A mix of variants fails with every release, so the step between releases comes after it.
    domain_libraries.other_variant,
    domain_libraries.other_release,
    torch_build.release,
    torch_build.other_source,
    # What must fit torch.
    companions.extension_for_other_torch,
    companions.other_cxx_abi,
    companions.triton_not_pinned,
    domain_libraries.mixed_channels,
    companions.companions_differ,
    companions.no_binary_for_cuda,
    packages.numpy_2_with_old_torch,
    packages.numpy_2_with_old_extensions,
    devices.workspace_for_determinism,
    devices.no_peer_to_peer,
    toolkit.nvcc_missing,
    toolkit.nvcc_major,
    lock_state.index_line,
    # Differences, the ones with the largest effect first.
    driver.reference_build_needs_newer,
    gpu.reference_build_has_no_kernels,
    system.reference_needs_newer_glibc,
    packages.other_content,
    library_versions.nccl_differs,
    companions.triton_differs,
    system.soname_other,
    # Symptoms: they lead only where no cause was found.
    torch_state.not_importable,
    torch_state.sees_no_gpu,
    # Works, but otherwise.
    gpu.tf32_step,
    variables.tf32_default_moved,
    variables.tf32_by_default,
    variables.tf32_differs,
    library_versions.cudnn_differs,
    allocator_settings.allocator_differs,
    variables.determinism_differs,
    variables.backend_differs,
    variables.variable_differs,
    gpu.smaller_memory,
    library_versions.other_than_pinned,
    library_versions.cudnn_below_gate,
    toolkit.blackwell_attention,
    allocator_settings.expandable_with_pool,
    allocator_settings.option_too_new,
    allocator_settings.option_refused,
    allocator_settings.caching_off,
    variables.two_spellings,
    devices.order_of_devices,
    devices.other_selection,
    devices.extensions_for_other_gpus,
    devices.variable_of_the_runtime,
    system.small_shm,
    system.cgroup_memory,
    preflight.disk_nearly_full,
    preflight.not_writable,
    preflight.cache_badly_placed,
    preflight.cache_not_writable,
    toolkit.no_c_compiler,
    gpu.only_ptx,
    gpu_state.memory_in_use,
    gpu_state.throttled,
    gpu_state.lowered_limits,
    interpreter.emulated,
    interpreter.others_from_elsewhere,
    interpreter.minor_version,
    interpreter.kind_of_python,
    system.other_machine_kind,
    packages.numpy_major,
    packages.other_commit,
    packages.version_differs,
    packages.missing,
    packages.added,
    installation.contested_files,
    installation.files_added,
    installation.duplicates,
    installation.broken_metadata,
    installation.unmet,
    system.few_open_files,
    lock_state.from_local_files,
    lock_state.unrecorded_source,
    lock_state.editable,
    # Recorded.
    variables.search_path_differs,
    cuda_libraries.other_place,
    driver.driver_differs,
    system.glibc_differs,
    system.soname_needs,
    gpu.mig,
    gpu_state.no_persistence,
    preflight.cache_full,
)
"""Where two findings are equally severe, the one whose rule stands first leads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of the manual."""

    code: str
    severity: Severity
    """As a rule; single findings may be milder, and ``verify`` is stricter."""
    title: str
    text: str


@functools.cache
def _pages() -> dict[str, Page]:
    # Imported here: their models are built at import, or only a page asks for them.
    from envlock.rules import behaviour, memory_triage, recorded_memory  # noqa: PLC0415

    found: dict[str, Page] = {}
    more = (behaviour, recorded_memory, memory_triage, plain, errors, requirements, image_gates)
    for rule in (*RULES, *(page for module in more for page in module.PAGES)):
        if rule.code in found:
            raise AssertionError(f"{rule.code} is used twice")
        found[rule.code] = Page(
            code=rule.code, severity=rule.severity, title=rule.title, text=rule.manual
        )
    return found


def manual(code: str) -> Page | None:
    """What ``envlock explain CODE`` prints; None for a code that does not exist."""
    return _pages().get(code.upper())


def all_codes() -> tuple[str, ...]:
    """Every code, in order of number."""
    return tuple(sorted(_pages()))
