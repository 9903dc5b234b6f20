! Fortran through flang: array order and bounds from descriptors are affine.
! REQUIRES: flang
! RUN: %flang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
! CHECK: prefetch and release of {{[0-9]+}} streams (0 indirect) over 3 loops, strip-mined: sss
subroutine smooth(a, b, n)
  integer :: n
  real(8) :: a(n,n,n), b(n,n,n)
  integer :: i, j, k
  do k = 2, n - 1
    do j = 2, n - 1
      do i = 2, n - 1
        b(i,j,k) = 0.25d0 * (a(i-1,j,k) + a(i+1,j,k) + a(i,j-1,k) + a(i,j,k+1))
      end do
    end do
  end do
end subroutine
