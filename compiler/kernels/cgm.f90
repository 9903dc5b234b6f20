! CGM's conjugate gradients in Fortran, for flang: what cgm.c computes. The
! matrix and the mapped file are cgm.c's; its indices begin at 0.
module cgm
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_long
  implicit none
contains

  subroutine multiply(n, row, column, value, v, out)
    integer(c_long), intent(in) :: n, row(n + 1)
    integer(c_int), intent(in) :: column(*)
    real(c_double), intent(in) :: value(*), v(n)
    real(c_double), intent(out) :: out(n)
    real(c_double) :: sum
    integer(c_long) :: i, k
    do i = 1, n
      sum = 0
      do k = row(i) + 1, row(i + 1)
        sum = sum + value(k) * v(column(k) + 1)
      end do
      out(i) = sum
    end do
  end subroutine

  function dot(n, a, b)
    integer(c_long), intent(in) :: n
    real(c_double), intent(in) :: a(n), b(n)
    real(c_double) :: dot
    integer(c_long) :: i
    dot = 0
    do i = 1, n
      dot = dot + a(i) * b(i)
    end do
  end function

  ! Solves for x, `inner` steps, into z; x becomes z by its length. Norm of the
  ! residual, and one over the length.
  subroutine conj_grad(n, inner, row, column, value, x, z, p, q, r, residual, norm) bind(C)
    integer(c_long), value :: n
    integer(c_int), value :: inner
    integer(c_long), intent(in) :: row(n + 1)
    integer(c_int), intent(in) :: column(*)
    real(c_double), intent(in) :: value(*)
    real(c_double), intent(inout) :: x(n), z(n), p(n), q(n), r(n)
    real(c_double), intent(out) :: residual, norm
    real(c_double) :: rho, before, alpha
    integer(c_long) :: i
    integer(c_int) :: step
    do i = 1, n
      z(i) = 0
      q(i) = 0
      r(i) = x(i)
      p(i) = r(i)
    end do
    rho = dot(n, r, r)
    do step = 1, inner
      call multiply(n, row, column, value, p, q)
      alpha = rho / dot(n, p, q)
      do i = 1, n
        z(i) = z(i) + alpha * p(i)
        r(i) = r(i) - alpha * q(i)
      end do
      before = rho
      rho = dot(n, r, r)
      do i = 1, n
        p(i) = r(i) + rho / before * p(i)
      end do
    end do
    call multiply(n, row, column, value, z, q)
    residual = 0
    do i = 1, n
      residual = residual + (x(i) - q(i)) * (x(i) - q(i))
    end do
    residual = sqrt(residual)
    norm = 1 / sqrt(dot(n, z, z))
    do i = 1, n
      x(i) = norm * z(i)
    end do
  end subroutine
end module
